// Products of 8 bits whose left operand is rows, on Hopper: what `warpgroup.cu` does, in pairs. Behind `groups.cuh`,
// `quantized.cuh`, `pairs.cuh`, `warpgroup.cu` and a `Tail`.

// 64 x 32 by 32 x COLUMNS, added to the sums if `add`; both out of shared memory, where the right one has a row for each column of
// the result. `a`, `b` and `p` name the last operands.
#define MULTIPLY_PAIRS(TYPE, SUM, KIND, PTX, SIGNS, COLUMNS, COUNT, a, b, p)                                           \
    template <bool TURNED>                                                                                             \
    __device__ __forceinline__ void multiply_add(TYPE, SUM(&d)[COUNT], uint64 left, uint64 right, int32 add) {         \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " p ", 0;\n"                                                \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k32." PTX " {" NAMES_##COUNT "}, " a ", " b         \
                     ", add" SIGNS ";\n}"                                                                              \
                     : SUMS_##COUNT(KIND, 0)                                                                           \
                     : "l"(left), "l"(right), "r"(add));                                                               \
    }
#define MULTIPLIES_PAIRS(TYPE, SUM, KIND, PTX, SIGNS)                                                                  \
    MULTIPLY_PAIRS(TYPE, SUM, KIND, PTX, SIGNS, 32, 16, "%16", "%17", "%18")                                           \
    MULTIPLY_PAIRS(TYPE, SUM, KIND, PTX, SIGNS, 64, 32, "%32", "%33", "%34")                                           \
    MULTIPLY_PAIRS(TYPE, SUM, KIND, PTX, SIGNS, 128, 64, "%64", "%65", "%66")                                          \
    MULTIPLY_PAIRS(TYPE, SUM, KIND, PTX, SIGNS, 192, 96, "%96", "%97", "%98")                                          \
    MULTIPLY_PAIRS(TYPE, SUM, KIND, PTX, SIGNS, 256, 128, "%128", "%129", "%130")
MULTIPLIES_PAIRS(TwoSigned, int32, INTEGER_SUM, "s32.s8.s8", "")
MULTIPLIES_PAIRS(TwoUnsigned, int32, INTEGER_SUM, "s32.u8.s8", "")
MULTIPLIES_PAIRS(TwoFloats, float, FLOAT_SUM, "f32.e4m3.e4m3", ", 1, 1")

// What follows, of sums whose unit differs from channel to channel. STARTS says whether integers begin with other numbers than 0.
template <bool STARTS>
struct Scaled : Tail {
    Channels channels;

    __device__ __forceinline__ Scaled(const Tail& tail, const Channels& lists) : Tail(tail), channels(lists) {}
};

template <bool STARTS, typename Sum>
__device__ __forceinline__ float in_unit(const Scaled<STARTS>& tail, const Sum& sum, int32 channel) {
    return tail.channels.scaled(sum, channel);
}
template <bool STARTS, typename Sum>
__device__ __forceinline__ Pack<float, 2> in_unit(const Scaled<STARTS>& tail, const Pack<Sum, 2>& sums, int32 channel) {
    // Tiles go beyond the last channel, and lists do not: they have an even length.
    const int32 own = min(channel, tail.channels.pitch - 2);
    const float2 scale = __ldg((const float2*)(tail.channels.scales + own));
    const float2 shift = __ldg((const float2*)(tail.channels.shifts() + own));
    int2 start = {0, 0};
    if (STARTS) start = __ldg((const int2*)(tail.channels.starts() + own));
    Pack<float, 2> numbers;
    numbers.item[0] = scaled(sums.item[0], start.x, scale.x, shift.x);
    numbers.item[1] = scaled(sums.item[1], start.y, scale.y, shift.y);
    return numbers;
}
