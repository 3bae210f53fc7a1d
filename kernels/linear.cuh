// What follows a product of 8 bits where it is linear but for the last rounding: numbers are in units of the result.

// The low bytes of four words.
__device__ __forceinline__ uint32 low_bytes(const uint32 (&words)[4]) {
    return __byte_perm(__byte_perm(words[0], words[1], 0x40), __byte_perm(words[2], words[3], 0x40), 0x5410);
}

// Codes of numbers in units of the result, in the low bytes of words.
template <int32 ZERO, int32 LOW, int32 HIGH>
struct Coder {
    static __device__ __forceinline__ uint32 of(float x) {
        if constexpr (ZERO == 0 && LOW == 0 && HIGH == 255) return f_code<0, 0, 255>(x);
        // Beside this even number floats are integers, of which the last byte is left.
        constexpr float INTEGERS = 12582912.0f;
        return __float_as_uint(fminf(fmaxf(x, LOW - ZERO), HIGH - ZERO) + INTEGERS) + ZERO;
    }
};

// What follows a product: nothing but its code.
template <typename Code>
struct Bare {
    __device__ __forceinline__ uint32 four(const float (&numbers)[4], uint32) const {
        const uint32 words[4] = {Code::of(numbers[0]), Code::of(numbers[1]), Code::of(numbers[2]), Code::of(numbers[3])};
        return low_bytes(words);
    }
};

// A residual with a factor in front of that. Codes count from -BEGIN on, and there ZERO is their zero point.
struct Factor {
    float at[1];
};
template <typename Code, int32 BEGIN, int32 ZERO>
struct WithResidual {
    float factor;

    __device__ __forceinline__ uint32 four(const float (&numbers)[4], uint32 added) const {
        // Beside this number the last byte of a float counts one by one.
        constexpr uint32 COUNTS = 0x4b000000;
        const uint32 counted = BEGIN ? added ^ 0x80808080u : added;
        uint32 words[4];
        #pragma unroll
        for (int32 i = 0; i < 4; i++) {
            const float code = __uint_as_float(__byte_perm(counted, COUNTS, 0x7540 + i)) - (8388608.0f + ZERO);
            words[i] = Code::of(__fmaf_rn(code, factor, numbers[i]));
        }
        return low_bytes(words);
    }
};
