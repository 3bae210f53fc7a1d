// The best elements of each line. Blocks sort chunks of lines in shared memory; of a longer line, pairs of sorted runs are
// merged until one is left, no longer than what is kept.

struct Lines {
    // Numbers of a line lie `inner` elements apart; `inner` lines lie next to each other, `outer` times.
    int32 outer, length, inner, kept;
    // Places of a chunk, a power of two, and the chunks of a line.
    int32 size, chunks;
    // Before a merge: the runs of a line, and their length. After it: their length.
    int32 runs, run, merged;
    // Entries that each of the two halves of the workspace holds, and which of them is read.
    int32 capacity, half;
};

// Numbers that order as elements do, the best one first. NaN is the best; the zeros are equal.
template <typename T>
struct Key {
    typedef uint32 type;
    static __device__ __forceinline__ uint32 of(T x, bool greatest) {
        const uint32 up = (T)-1 < (T)0 ? (uint32)(int32)x ^ 0x80000000u : (uint32)x;
        return greatest ? ~up : up;
    }
};
template <typename T>
struct LongKey {
    typedef uint64 type;
    static __device__ __forceinline__ uint64 of(T x, bool greatest) {
        const uint64 up = (T)-1 < (T)0 ? (uint64)x ^ 0x8000000000000000ull : (uint64)x;
        return greatest ? ~up : up;
    }
};
template <>
struct Key<int64> : LongKey<int64> {};
template <>
struct Key<uint64> : LongKey<uint64> {};
template <typename T>
struct RealKey {
    typedef uint32 type;
    static __device__ __forceinline__ uint32 of(T element, bool greatest) {
        const float x = widen(element);
        if (x != x) return 0;
        const uint32 bits = x == 0.0f ? 0 : __float_as_uint(x);
        const uint32 up = bits >> 31 ? ~bits : bits | 0x80000000u;
        return greatest ? ~up : up;
    }
};
template <>
struct Key<float> : RealKey<float> {};
template <>
struct Key<float16> : RealKey<float16> {};
template <>
struct Key<bfloat16> : RealKey<bfloat16> {};
template <>
struct Key<double> {
    typedef uint64 type;
    static __device__ __forceinline__ uint64 of(double x, bool greatest) {
        if (x != x) return 0;
        const uint64 bits = x == 0.0 ? 0 : (uint64)__double_as_longlong(x);
        const uint64 up = bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
        return greatest ? ~up : up;
    }
};

// Of equal elements the first one comes first.
template <typename K>
__device__ __forceinline__ bool precedes(K a, uint32 a_at, K b, uint32 b_at) {
    return a < b || (a == b && a_at < b_at);
}

// The halves of the workspace: keys of both, then places of both.
template <typename K>
__device__ __forceinline__ K* keys_of(void* workspace, const Lines& s, int32 half) {
    return (K*)workspace + (uint64)half * s.capacity;
}
template <typename K>
__device__ __forceinline__ uint32* places_of(void* workspace, const Lines& s, int32 half) {
    return (uint32*)((K*)workspace + 2 * (uint64)s.capacity) + (uint64)half * s.capacity;
}

// Where a line begins that has so many numbers.
__device__ __forceinline__ uint64 begins(uint32 line, uint32 length, const Lines& s) {
    return (uint64)(line / s.inner) * length * s.inner + line % s.inner;
}

template <typename T>
__device__ __forceinline__ void give(T* y, int64* indices, const T* x, uint32 line, uint32 rank, uint32 at, const Lines& s) {
    const uint64 to = begins(line, s.kept, s) + (uint64)rank * s.inner;
    y[to] = x[begins(line, s.length, s) + (uint64)at * s.inner];
    indices[to] = at;
}

// CELLS: how many elements a block sorts, in chunks of s.size.
template <typename T, int CELLS, bool GREATEST>
__device__ __forceinline__ void sort_chunks(T* y, int64* indices, const T* x, void* workspace, const Lines& s) {
    typedef typename Key<T>::type K;
    __shared__ K keys[CELLS];
    __shared__ uint32 places[CELLS];
    const uint32 lines = s.outer * s.inner, size = s.size, first = blockIdx.x * (CELLS / size);
    for (uint32 cell = threadIdx.x; cell < CELLS; cell += blockDim.x) {
        const uint32 chunk = first + cell / size, line = chunk / s.chunks;
        const uint32 at = chunk % s.chunks * size + cell % size;
        const bool there = line < lines && at < s.length;
        // What is not there comes last.
        keys[cell] = there ? Key<T>::of(x[begins(line, s.length, s) + (uint64)at * s.inner], GREATEST) : ~(K)0;
        places[cell] = there ? at : 0xffffffffu;
    }
    for (uint32 sorted = 2; sorted <= size; sorted <<= 1) {
        for (uint32 apart = sorted >> 1; apart > 0; apart >>= 1) {
            __syncthreads();
            for (uint32 pair = threadIdx.x; pair < CELLS / 2; pair += blockDim.x) {
                const uint32 a = 2 * pair - (pair & (apart - 1)), b = a + apart;
                const bool up = sorted == size || (a & sorted) == 0;
                const K ka = keys[a], kb = keys[b];
                const uint32 pa = places[a], pb = places[b];
                if (precedes(kb, pb, ka, pa) != up || (ka == kb && pa == pb)) continue;
                keys[a] = kb;
                keys[b] = ka;
                places[a] = pb;
                places[b] = pa;
            }
        }
    }
    __syncthreads();
    for (uint32 cell = threadIdx.x; cell < CELLS; cell += blockDim.x) {
        const uint32 chunk = first + cell / size, line = chunk / s.chunks, rank = cell % size;
        if (line >= lines || rank >= s.run) continue;
        if (s.chunks == 1) {
            give(y, indices, x, line, rank, places[cell], s);
        } else {
            keys_of<K>(workspace, s, 0)[(uint64)chunk * s.run + rank] = keys[cell];
            places_of<K>(workspace, s, 0)[(uint64)chunk * s.run + rank] = places[cell];
        }
    }
}

// A thread finds where an entry of a run comes to lie among those of the run beside it.
template <typename T>
__device__ __forceinline__ void merge_runs(T* y, int64* indices, const T* x, void* workspace, const Lines& s) {
    typedef typename Key<T>::type K;
    const uint32 number = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32 rank = number % s.run, run = number / s.run % s.runs, line = number / s.run / s.runs;
    if (line >= (uint32)s.outer * s.inner) return;
    const K* keys = keys_of<K>(workspace, s, s.half);
    const uint32* places = places_of<K>(workspace, s, s.half);
    const K key = keys[number];
    const uint32 at = places[number], beside = run ^ 1;
    uint32 low = 0;
    if (beside < s.runs) {
        const uint64 other = (uint64)(line * s.runs + beside) * s.run;
        uint32 high = s.run;
        while (low < high) {
            const uint32 middle = (low + high) / 2;
            const K its = keys[other + middle];
            const uint32 place = places[other + middle];
            // Entries of what is not there are equal: those of the first run come first.
            const bool its_first = precedes(its, place, key, at) || (its == key && place == at && (run & 1));
            if (its_first) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    const uint32 to = rank + low, target = line * ((s.runs + 1) / 2) + run / 2;
    if (s.runs <= 2) {
        if (to < s.kept) give(y, indices, x, line, to, at, s);
        return;
    }
    K* merged_keys = keys_of<K>(workspace, s, 1 - s.half) + (uint64)target * s.merged;
    uint32* merged_places = places_of<K>(workspace, s, 1 - s.half) + (uint64)target * s.merged;
    if (to < s.merged) {
        merged_keys[to] = key;
        merged_places[to] = at;
    }
    // A run without another one is followed by nothing.
    if (beside >= s.runs && rank + s.run < s.merged) {
        merged_keys[rank + s.run] = ~(K)0;
        merged_places[rank + s.run] = 0xffffffffu;
    }
}
