// Pairs of neighbours of 8 bits, which are moved as one number of 16. Behind `quantized.cuh`.

// Integers of the left operand, of either kind; the right ones are signed.
struct TwoSigned {
    uint16 bits;
};
struct TwoUnsigned {
    uint16 bits;
};
// float8_e4m3fn in both operands.
struct TwoFloats {
    uint16 bits;
};
template <>
struct SumOf<TwoFloats> {
    typedef float type;
};
