// Kernels in which the threads of a block work on one row together: softmax, normalizations, reductions.
//
// A row is LENGTH numbers `inner` elements apart; there are `inner` of them next to each other.

struct Sum {
    static __device__ __forceinline__ float start() { return 0.0f; }
    static __device__ __forceinline__ float join(float a, float b) { return a + b; }
};
struct Product {
    static __device__ __forceinline__ float start() { return 1.0f; }
    static __device__ __forceinline__ float join(float a, float b) { return a * b; }
};
struct Greatest {
    static __device__ __forceinline__ float start() { return -__int_as_float(0x7f800000); }
    static __device__ __forceinline__ float join(float a, float b) { return f_max(a, b); }
};
struct Least {
    static __device__ __forceinline__ float start() { return __int_as_float(0x7f800000); }
    static __device__ __forceinline__ float join(float a, float b) { return f_min(a, b); }
};

// Joins a number of each thread of the block; all get the result.
template <typename Op>
__device__ __forceinline__ float joined(float x) {
    __shared__ float warps[33];
    for (int lane = 16; lane > 0; lane >>= 1) x = Op::join(x, __shfl_xor_sync(0xffffffffu, x, lane));
    const uint32 warp = threadIdx.x >> 5, count = (blockDim.x + 31) >> 5;
    // Whoever still reads what an earlier call left must be done.
    __syncthreads();
    if ((threadIdx.x & 31) == 0) warps[warp] = x;
    __syncthreads();
    if (warp == 0) {
        float all = threadIdx.x < count ? warps[threadIdx.x] : Op::start();
        for (int lane = 16; lane > 0; lane >>= 1) all = Op::join(all, __shfl_xor_sync(0xffffffffu, all, lane));
        if (threadIdx.x == 0) warps[32] = all;
    }
    __syncthreads();
    return warps[32];
}

__device__ __forceinline__ uint64 row_start(uint32 row, uint32 length, uint32 inner) {
    return (uint64)(row / inner) * length * inner + row % inner;
}

// y = softmax(x) or its logarithm.
template <typename X, bool LOGARITHM>
__device__ void softmax(X* y, const X* x, uint32 length, uint32 inner) {
    const uint64 start = row_start(blockIdx.x, length, inner);
    x += start;
    y += start;
    float most = Greatest::start();
    for (uint32 i = threadIdx.x; i < length; i += blockDim.x) most = f_max(most, widen(x[(uint64)i * inner]));
    most = joined<Greatest>(most);
    float sum = 0.0f;
    for (uint32 i = threadIdx.x; i < length; i += blockDim.x) sum += exp(widen(x[(uint64)i * inner]) - most);
    sum = joined<Sum>(sum);
    const float scale = 1.0f / sum, down = log(sum);
    for (uint32 i = threadIdx.x; i < length; i += blockDim.x) {
        const float away = widen(x[(uint64)i * inner]) - most;
        y[(uint64)i * inner] = Narrow<X>::from(LOGARITHM ? away - down : exp(away) * scale);
    }
}

// y = (x - mean) / sqrt(variance + epsilon) * scale + shift, or without the mean; x = a + b where ADDED, which `kept` gets
// where KEPT.
template <typename X, typename S, bool CENTRED, bool ADDED, bool KEPT, bool SCALED, bool SHIFTED>
__device__ void normalize(
    X* y, X* kept, const X* a, const X* b, const S* scale, const S* shift, uint32 length, float epsilon
) {
    extern __shared__ float row[];
    const uint64 start = (uint64)blockIdx.x * length;
    float sum = 0.0f;
    for (uint32 i = threadIdx.x; i < length; i += blockDim.x) {
        float x = widen(a[start + i]);
        if (ADDED) x += widen(b[start + i]);
        if (KEPT) kept[start + i] = Narrow<X>::from(x);
        row[i] = x;
        sum += x;
    }
    const float mean = CENTRED ? joined<Sum>(sum) / length : 0.0f;
    float squares = 0.0f;
    for (uint32 i = threadIdx.x; i < length; i += blockDim.x) squares += f_square(row[i] - mean);
    const float factor = 1.0f / sqrt(joined<Sum>(squares) / length + epsilon);
    for (uint32 i = threadIdx.x; i < length; i += blockDim.x) {
        float value = (row[i] - mean) * factor;
        if (SCALED) value *= widen(scale[i]);
        if (SHIFTED) value += widen(shift[i]);
        y[start + i] = Narrow<X>::from(value);
    }
}

// One number for each row: `before` of each element, joined, and `after` of that.
template <typename X, typename Rule>
__device__ void reduce(X* y, const X* x, uint32 length, uint32 inner) {
    x += row_start(blockIdx.x, length, inner);
    float result = Rule::Op::start();
    for (uint32 i = threadIdx.x; i < length; i += blockDim.x) {
        result = Rule::Op::join(result, Rule::before(widen(x[(uint64)i * inner])));
    }
    result = joined<typename Rule::Op>(result);
    if (threadIdx.x == 0) y[blockIdx.x] = Narrow<X>::from(Rule::after(result, (float)length));
}

#define RULE(name, op, first, last)                                                                  \
    struct name {                                                                                    \
        typedef op Op;                                                                               \
        static __device__ __forceinline__ float before(float x) { return first; }                    \
        static __device__ __forceinline__ float after(float x, float length) { return last; }        \
    };
RULE(ReduceSum, Sum, x, x)
RULE(ReduceMean, Sum, x, x / length)
RULE(ReduceMax, Greatest, x, x)
RULE(ReduceMin, Least, x, x)
RULE(ReduceProd, Product, x, x)
RULE(ReduceL1, Sum, fabs(x), x)
RULE(ReduceL2, Sum, x * x, sqrt(x))
RULE(ReduceSumSquare, Sum, x * x, x)
RULE(ReduceLogSum, Sum, x, log(x))
