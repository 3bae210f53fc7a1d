// What becomes of the sums of products of 8 bits.

// What they are summed in.
template <typename X>
struct SumOf {
    typedef int32 type;
};
template <>
struct SumOf<float8e4m3fn> {
    typedef float type;
};

// A sum in the unit of the result, rounded as layers one after another round it; `start` counts where integers are summed.
__device__ __forceinline__ float scaled(int32 sum, int32 start, float scale, float shift) {
    return __fadd_rn(__fmul_rn((float)(sum + start), scale), shift);
}
__device__ __forceinline__ float scaled(float sum, int32, float scale, float shift) {
    return __fadd_rn(__fmul_rn(sum, scale), shift);
}

// For each channel of the result what its sums are multiplied by, what is added then, and what they begin with, each list
// `pitch` long.
struct Channels {
    const float* scales;
    int32 pitch;

    __device__ __forceinline__ const float* shifts() const { return scales + pitch; }
    __device__ __forceinline__ const int32* starts() const { return (const int32*)(scales + 2 * pitch); }
    template <typename Sum>
    __device__ __forceinline__ float scaled(Sum sum, int32 channel) const {
        return ::scaled(sum, starts()[channel], scales[channel], shifts()[channel]);
    }
};
