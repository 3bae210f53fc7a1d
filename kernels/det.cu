// Determinants: Gauss's elimination with the greatest pivot of each column. A thread has a matrix, and room for a copy of it.

struct Matrices {
    int32 count, size;
};

template <typename T>
__device__ __forceinline__ void det(T* y, const T* x, typename Wide<T>::type* room, const Matrices& s) {
    typedef typename Wide<T>::type W;
    const uint32 number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= (uint32)s.count) return;
    const int32 size = s.size;
    const uint64 elements = (uint64)size * size;
    W* a = room + number * elements;
    for (uint64 i = 0; i < elements; i++) a[i] = widen(x[number * elements + i]);
    W product = (W)1;
    for (int32 step = 0; step < size && product != (W)0; step++) {
        int32 best = step;
        for (int32 row = step + 1; row < size; row++) {
            if (abs(a[(uint64)row * size + step]) > abs(a[(uint64)best * size + step])) best = row;
        }
        W* pivots = a + (uint64)step * size;
        for (int32 column = step; best != step && column < size; column++) {
            const W other = a[(uint64)best * size + column];
            a[(uint64)best * size + column] = pivots[column];
            pivots[column] = other;
        }
        product *= best == step ? pivots[step] : -pivots[step];
        for (int32 row = step + 1; row < size; row++) {
            W* below = a + (uint64)row * size;
            const W factor = below[step] / pivots[step];
            for (int32 column = step + 1; column < size; column++) below[column] -= factor * pivots[column];
        }
    }
    y[number] = Narrow<T>::from(product);
}
