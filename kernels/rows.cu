// What kernels share in which threads work on rows of numbers together: packs of elements, and joining what each thread has.

// The type in which many elements come together.
template <typename T>
struct Total {
    typedef int64 type;
};
template <>
struct Total<uint64> {
    typedef uint64 type;
};
template <>
struct Total<double> {
    typedef double type;
};
template <>
struct Total<float> {
    typedef float type;
};
template <>
struct Total<float16> {
    typedef float type;
};
template <>
struct Total<bfloat16> {
    typedef float type;
};

// The least and the greatest value of an element type.
template <typename T>
struct Limits {
    static __device__ __forceinline__ T lowest() {
        return (T)-1 < (T)0 ? (T)((uint64)1 << (8 * sizeof(T) - 1)) : (T)0;
    }
    static __device__ __forceinline__ T highest() { return (T)~(uint64)lowest(); }
};
#define INFINITE(T, W)                                                                                          \
    template <>                                                                                                 \
    struct Limits<T> {                                                                                          \
        static __device__ __forceinline__ W lowest() { return (W)-__longlong_as_double(0x7ff0000000000000ll); } \
        static __device__ __forceinline__ W highest() { return (W)__longlong_as_double(0x7ff0000000000000ll); } \
    };
INFINITE(double, double)
INFINITE(float, float)
INFINITE(float16, float)
INFINITE(bfloat16, float)

// The exponential function, as exact as the element type can tell.
template <typename T>
__device__ __forceinline__ typename Wide<T>::type exponential(typename Wide<T>::type x) {
    if constexpr (sizeof(T) == 2) return __expf(x);
    return exp(x);
}

template <typename T, int N, typename W>
__device__ __forceinline__ void load(W (&to)[N], const T* from) {
    const Pack<T, N> pack = *(const Pack<T, N>*)from;
    #pragma unroll
    for (int k = 0; k < N; k++) to[k] = (W)widen(pack.item[k]);
}

template <typename T, int N, typename W>
__device__ __forceinline__ void store(T* to, const W (&from)[N]) {
    Pack<T, N> pack;
    #pragma unroll
    for (int k = 0; k < N; k++) pack.item[k] = Narrow<T>::from(from[k]);
    *(Pack<T, N>*)to = pack;
}

// Visits the elements of a run that begins at `start`, counted from an address that is a whole number of packs: as packs
// where they are whole, one at a time before and behind.
template <int N, typename Visitor>
__device__ __forceinline__ void walk(uint64 start, uint32 length, uint32 member, uint32 team, Visitor& visitor) {
    const uint32 uneven = start % N, head = uneven ? N - uneven : 0;
    if (N == 1 || length < head + N) {
        #pragma unroll 4
        for (uint32 at = member; at < length; at += team) visitor.template visit<1>(at);
        return;
    }
    if (member < head) visitor.template visit<1>(member);
    const uint32 behind = head + (length - head) / N * N;
    #pragma unroll 4
    for (uint32 at = head + member * N; at < behind; at += team * N) visitor.template visit<N>(at);
    if (behind + member < length) visitor.template visit<1>(behind + member);
}

// A number of any whole words of the thread whose lane differs in these bits.
template <typename A>
__device__ __forceinline__ A beside(A x, int32 lanes) {
    union Words {
        A whole;
        uint32 word[sizeof(A) / 4];
    } mine, other;
    mine.whole = x;
    #pragma unroll
    for (int i = 0; i < (int)(sizeof(A) / 4); i++) other.word[i] = __shfl_xor_sync(0xffffffffu, mine.word[i], lanes);
    return other.whole;
}

// Joins a number of each thread of a team: the block, or a power of two of neighbours in a warp. All get the result.
template <typename Op, bool BLOCK>
__device__ __forceinline__ typename Op::Acc joined(typename Op::Acc x, uint32 team) {
    for (uint32 lanes = (BLOCK ? 32 : team) >> 1; lanes > 0; lanes >>= 1) x = Op::join(x, beside(x, lanes));
    if constexpr (BLOCK) {
        __shared__ typename Op::Acc warps[32];
        const uint32 lane = threadIdx.x & 31, count = blockDim.x >> 5;
        // Whoever still reads what an earlier call left must be done.
        __syncthreads();
        if (lane == 0) warps[threadIdx.x >> 5] = x;
        __syncthreads();
        x = lane < count ? warps[lane] : Op::start();
        for (int32 lanes = 16; lanes > 0; lanes >>= 1) x = Op::join(x, beside(x, lanes));
    }
    return x;
}

template <typename W>
struct Sum {
    typedef W Acc;
    static __device__ __forceinline__ W start() { return (W)0; }
    static __device__ __forceinline__ W join(W a, W b) { return a + b; }
};
template <typename W>
struct Greatest {
    typedef W Acc;
    static __device__ __forceinline__ W start() { return Limits<W>::lowest(); }
    static __device__ __forceinline__ W join(W a, W b) { return f_max(a, b); }
};

// A thread's place in a team that has a row of its own.
template <bool BLOCK>
struct Member {
    uint32 team, number, row;
    __device__ __forceinline__ Member(uint32 size) {
        team = BLOCK ? blockDim.x : size;
        number = BLOCK ? threadIdx.x : threadIdx.x & (size - 1);
        row = BLOCK ? blockIdx.x : (blockIdx.x * blockDim.x + threadIdx.x) / size;
    }
};
