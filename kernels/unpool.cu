// MaxUnpool: which element comes to a place of the result is settled first, so that of several the last one does.

struct Unpool {
    int32 elements, results, rank;
    // Extents over which the indices count, and those of the result; the steps of both.
    int32 counted[5], out[5], counting[5], to[5];
};

__device__ __forceinline__ void unpool_clear(int32* owners, const Unpool& s) {
    const uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < s.results) owners[at] = -1;
}

__device__ __forceinline__ void unpool_claim(int32* owners, const int64* indices, const Unpool& s, int64* flag) {
    const uint32 number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= s.elements) return;
    const int64 index = indices[number];
    bool inside = index >= 0 && index < (int64)s.counted[0] * s.counting[0];
    uint64 at = 0;
    for (int a = 0; a < 5 && inside; a++) {
        const int64 along = index / s.counting[a] % s.counted[a];
        inside = along < s.out[a];
        at += along * s.to[a];
    }
    if (inside) {
        atomicMax(owners + at, (int32)number);
    } else {
        complain(flag, index);
    }
}

template <typename T>
__device__ __forceinline__ void unpool_give(T* y, const T* x, const int32* owners, const Unpool& s) {
    const uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= s.results) return;
    const int32 owner = owners[at];
    T value = T();
    if (owner >= 0) value = x[owner];
    y[at] = value;
}
