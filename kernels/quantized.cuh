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

// Where the results of a product are put: as they are counted, a pixel for each row, a channel for each column.
struct AsRows {
    __device__ __forceinline__ int32 channels(int32 columns) const { return columns; }
    __device__ __forceinline__ int32 channel(int32 column) const { return column; }
    __device__ __forceinline__ int64 pixel(int64 row, int32) const { return row; }
};

// In the image that a transposed convolution gives, a block of pixels for each row. Columns are the channels of one pixel of the block
// after another; `across` counts its columns, `down` its rows, and `width` the rows of the product that are one row of pixels.
struct AsBlocks {
    Divisor each, across, width;
    int32 down;

    __device__ __forceinline__ int32 channels(int32) const { return each.size; }
    __device__ __forceinline__ int32 channel(int32 column) const {
        uint32 rest = column;
        return each.take(rest);
    }
    __device__ __forceinline__ int64 pixel(int64 row, int32 column) const {
        uint32 above = row, below = each.divide(column);
        const int32 left = width.take(above), right = across.take(below);
        return (((int64)above * down + below) * width.size + left) * across.size + right;
    }
};
