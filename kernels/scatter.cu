// Runs of elements that indices name, written or combined with what is there: in the order of the updates where they meet,
// so that the result is always the same. To that end the updates are sorted by the place that they go to.

// A place in the upper half, the number of the update in the lower; sorted, updates of a place keep their order.
typedef uint64 Key;
#define NOWHERE 0xffffffffu

__device__ __forceinline__ uint32 place_of(Key key) { return (uint32)(key >> 32); }

template <int AXES, int NUMBERS>
struct Updates {
    uint32 count;
    // Keys that a block sorts: a power of two, twice its threads.
    uint32 chunk;
    Runs<AXES, NUMBERS> runs;
};

// Sorts the keys of each chunk (a bitonic network).
template <typename I, int AXES, int NUMBERS>
__device__ __forceinline__ void sort_chunks(Key* keys, const I* indices, const Updates<AXES, NUMBERS>& s, int64* flag) {
    __shared__ Key held[2048];
    const uint32 first = blockIdx.x * s.chunk;
    for (uint32 i = threadIdx.x; i < s.chunk; i += blockDim.x) {
        uint64 at = 0;
        Key key = ~0ull;
        if (first + i < s.count) {
            const bool found = s.runs.find(first + i, indices, at, flag);
            key = (found ? at : (uint64)NOWHERE) << 32 | (first + i);
        }
        held[i] = key;
    }
    __syncthreads();
    for (uint32 sorted = 2; sorted <= s.chunk; sorted *= 2) {
        for (uint32 apart = sorted / 2; apart > 0; apart /= 2) {
            const uint32 t = threadIdx.x, low = (t & ~(apart - 1)) << 1 | (t & (apart - 1));
            const Key a = held[low], b = held[low + apart];
            if ((a > b) == ((low & sorted) == 0)) {
                held[low] = b;
                held[low + apart] = a;
            }
            __syncthreads();
        }
    }
    for (uint32 i = threadIdx.x; i < s.chunk && first + i < s.count; i += blockDim.x) keys[first + i] = held[i];
}

// Merges sorted parts of `width` keys in pairs: behind each key of one come as many of the other as are less.
__device__ __forceinline__ void merge_parts(Key* to, const Key* from, uint32 count, uint32 width) {
    const uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    const Key key = from[at];
    const uint32 part = at / width, other = part ^ 1, start = min(other * width, count);
    uint32 low = start, high = min(start + width, count);
    while (low < high) {
        const uint32 middle = low + (high - low) / 2;
        if (from[middle] < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    to[(part & ~1u) * width + at % width + (low - start)] = key;
}

// The type that updates are combined in.
template <typename T>
struct Combined {
    typedef int64 type;
};
template <>
struct Combined<uint64> {
    typedef uint64 type;
};
template <>
struct Combined<float> {
    typedef float type;
};
template <>
struct Combined<float16> {
    typedef float type;
};
template <>
struct Combined<bfloat16> {
    typedef float type;
};
template <>
struct Combined<double> {
    typedef double type;
};

// How an update meets what is there.
struct Add {
    template <typename W>
    static __device__ __forceinline__ W join(W a, W b) {
        return a + b;
    }
    // Of integers, what is too large is cut off.
    static __device__ __forceinline__ int64 join(int64 a, int64 b) { return (int64)((uint64)a + (uint64)b); }
};
struct Mul {
    template <typename W>
    static __device__ __forceinline__ W join(W a, W b) {
        return a * b;
    }
    static __device__ __forceinline__ int64 join(int64 a, int64 b) { return (int64)((uint64)a * (uint64)b); }
};
struct Max {
    template <typename W>
    static __device__ __forceinline__ W join(W a, W b) {
        return f_max(a, b);
    }
};
struct Min {
    template <typename W>
    static __device__ __forceinline__ W join(W a, W b) {
        return f_min(a, b);
    }
};

// The updates in the order of `keys`, and the packs of one.
struct Sorted {
    uint32 count;
    Divisor packs;
};

// Each place takes the last of its updates.
template <typename T, int N>
__device__ __forceinline__ void replace(T* y, const T* updates, const Key* keys, const Sorted& s) {
    uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32 pack = s.packs.take(at);
    if (at >= s.count) return;
    const Key key = keys[at];
    const uint32 place = place_of(key);
    if (place == NOWHERE || (at + 1 < s.count && place_of(keys[at + 1]) == place)) return;
    const uint64 from = (uint64)(uint32)key * s.packs.size + pack;
    store<N>(y + ((uint64)place * s.packs.size + pack) * N, fetch<N>(updates + from * N));
}

// Each place takes all of its updates, one after another, and is rounded once.
template <typename Rule, typename T, int N>
__device__ __forceinline__ void combine(T* y, const T* updates, const Key* keys, const Sorted& s) {
    typedef typename Combined<T>::type W;
    uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32 pack = s.packs.take(at);
    if (at >= s.count) return;
    const uint32 place = place_of(keys[at]);
    if (place == NOWHERE || (at > 0 && place_of(keys[at - 1]) == place)) return;
    T* to = y + ((uint64)place * s.packs.size + pack) * N;
    Pack<T, N> held = fetch<N>(to);
    W sums[N];
#pragma unroll
    for (int32 k = 0; k < N; k++) sums[k] = (W)widen(held.item[k]);
    for (; at < s.count && place_of(keys[at]) == place; at++) {
        const uint64 from = (uint64)(uint32)keys[at] * s.packs.size + pack;
        const Pack<T, N> more = fetch<N>(updates + from * N);
#pragma unroll
        for (int32 k = 0; k < N; k++) sums[k] = Rule::join(sums[k], (W)widen(more.item[k]));
    }
#pragma unroll
    for (int32 k = 0; k < N; k++) held.item[k] = Narrow<T>::from(sums[k]);
    store<N>(to, held);
}
