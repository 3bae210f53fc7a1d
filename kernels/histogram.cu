// Histogram: the ends of what each block reads, and then counts in shared memory over the range that all of them give.
// Bins, the ends of exponents and the exponent of what is not finite are those of src/network/ops/histogram.rs.

struct Numbers {
    int32 count;
};

// Of what a block has read.
struct BlockEnds {
    float least, greatest;
    uint32 not_finite;

    __device__ __forceinline__ void start() {
        least = __int_as_float(0x7f800000);
        greatest = -least;
        not_finite = 0;
    }

    __device__ __forceinline__ void look(float x) {
        least = fminf(least, x);
        greatest = fmaxf(greatest, x);
        not_finite |= (__float_as_int(x) & 0x7f800000) == 0x7f800000;
    }

    __device__ __forceinline__ void join(const BlockEnds& other) {
        least = fminf(least, other.least);
        greatest = fmaxf(greatest, other.greatest);
        not_finite |= other.not_finite;
    }

    // Of all threads of the block, in each of them.
    __device__ __forceinline__ void join_block() {
        __shared__ BlockEnds warps[32];
        for (int32 lanes = 16; lanes > 0; lanes >>= 1) {
            BlockEnds other;
            other.least = __shfl_xor_sync(0xffffffffu, least, lanes);
            other.greatest = __shfl_xor_sync(0xffffffffu, greatest, lanes);
            other.not_finite = __shfl_xor_sync(0xffffffffu, not_finite, lanes);
            join(other);
        }
        if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = *this;
        __syncthreads();
        for (uint32 w = 0; w < blockDim.x >> 5; w++) join(warps[w]);
    }
};

// Each number that this thread has to read, four at a time as far as they go.
template <typename F>
__device__ __forceinline__ void each_number(const float* x, uint32 count, F f) {
    const uint32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (uint32 at = first; at < count / 4; at += step) {
        const float4 four = ((const float4*)x)[at];
        f(four.x);
        f(four.y);
        f(four.z);
        f(four.w);
    }
    if (first < count % 4) f(x[count - count % 4 + first]);
}

__device__ __forceinline__ void find_ends(int32* counts, const float* x, BlockEnds* blocks, const Numbers& s) {
    for (uint32 at = blockIdx.x * blockDim.x + threadIdx.x; at < 2048; at += gridDim.x * blockDim.x) counts[at] = 0;
    BlockEnds ends;
    ends.start();
    each_number(x, s.count, [&](float number) { ends.look(number); });
    ends.join_block();
    if (threadIdx.x == 0) blocks[blockIdx.x] = ends;
}

__device__ __forceinline__ void count_bins(
    int32* counts, int32* exponent, float* both, const float* x, const BlockEnds* blocks, const Numbers& s) {
    __shared__ int32 table[2048];
    for (uint32 at = threadIdx.x; at < 2048; at += blockDim.x) table[at] = 0;
    BlockEnds ends;
    ends.start();
    for (uint32 at = threadIdx.x; at < gridDim.x; at += blockDim.x) ends.join(blocks[at]);
    ends.join_block();
    const int32 bits = __float_as_int(fmaxf(fmaxf(ends.greatest, -ends.least), 0.0f));
    const int32 power = min(max((bits >> 23) - 127 + ((bits & 0x007fffff) != 0), -100), 127);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *exponent = ends.not_finite ? 0x7fffffff : power;
        both[0] = ends.not_finite ? __int_as_float(0x7fc00000) : ends.least;
        both[1] = ends.not_finite ? __int_as_float(0x7fc00000) : ends.greatest;
    }
    if (ends.not_finite) return;
    const float width = __int_as_float((127 + 11 - power) << 23);
    // Zeros are many, and would wait for each other.
    int32 zeros = 0;
    each_number(x, s.count, [&](float number) {
        const int32 bin = min((int32)(fabsf(number) * width), 2047);
        if (bin == 0) zeros++;
        else atomicAdd(table + bin, 1);
    });
    for (int32 lanes = 16; lanes > 0; lanes >>= 1) zeros += __shfl_xor_sync(0xffffffffu, zeros, lanes);
    if ((threadIdx.x & 31) == 0 && zeros > 0) atomicAdd(table, zeros);
    __syncthreads();
    for (uint32 at = threadIdx.x; at < 2048; at += blockDim.x) {
        if (table[at] > 0) atomicAdd(counts + at, table[at]);
    }
}
