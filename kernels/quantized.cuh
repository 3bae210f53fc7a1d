// What becomes of the sums of products of 8 bits.

// A sum in the unit of the result, rounded as layers one after another round it.
__device__ __forceinline__ float scaled(int32 sum, float scale, float shift) {
    return __fadd_rn(__fmul_rn((float)sum, scale), shift);
}

// For each channel of the result what its sums are multiplied by, what is added then, and what they begin with, each list
// `pitch` long.
struct Channels {
    const float* scales;
    int32 pitch;

    __device__ __forceinline__ const float* shifts() const { return scales + pitch; }
    __device__ __forceinline__ const int32* starts() const { return (const int32*)(scales + 2 * pitch); }
    __device__ __forceinline__ float scaled(int32 sum, int32 channel) const {
        return ::scaled(sum + starts()[channel], scales[channel], shifts()[channel]);
    }
};
