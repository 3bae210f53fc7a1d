// Elements that follow from their places: counted, marked, kept, turned round, mapped or added up.

struct Count {
    uint32 items;
};

template <typename T>
struct Counted {
    // Integers that are too large are cut off.
    static __device__ __forceinline__ T at(T start, T delta, uint32 i) { return (T)((uint64)start + i * (uint64)delta); }
};
template <>
struct Counted<double> {
    static __device__ __forceinline__ double at(double start, double delta, uint32 i) { return start + i * delta; }
};

template <typename T>
__device__ __forceinline__ void range(T* y, const T* start, const T* delta, const Count& s) {
    const uint32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < s.items) y[i] = Counted<T>::at(*start, *delta, i);
}
// Of narrower numbers than these, each is rounded from the exact one.
template <typename T>
__device__ __forceinline__ void narrow_range(T* y, const T* start, const T* delta, const Count& s) {
    const uint32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < s.items) y[i] = Narrow<T>::from((float)Counted<double>::at(widen(*start), widen(*delta), i));
}

struct Marks {
    // In packs: of all, and of what lies within an element of the new axis.
    uint32 items;
    Divisor inner, depth;
};

template <typename T, int N, typename I>
__device__ __forceinline__ void one_hot(T* y, const I* indices, const T* values, const Marks& s) {
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.items) return;
    uint32 rest = item;
    const uint32 within = s.inner.take(rest), here = s.depth.take(rest);
    const T off = values[0], on = values[1];
    indices += ((uint64)rest * s.inner.size + within) * N;
    Pack<T, N> pack;
#pragma unroll
    for (int32 k = 0; k < N; k++) {
        const int64 index = (int64)widen(indices[k]);
        pack.item[k] = (index < 0 ? index + (int64)s.depth.size : index) == (int64)here ? on : off;
    }
    store<N>(y + (uint64)item * N, pack);
}

struct Triangle {
    uint32 items;
    // Packs of a row, and rows of a matrix.
    Divisor columns, rows;
    int32 upper;
};

template <typename T, int N>
__device__ __forceinline__ void trilu(T* y, const T* x, int64 diagonal, const Triangle& s) {
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.items) return;
    uint32 rest = item;
    const int32 column = s.columns.take(rest) * N, row = s.rows.take(rest);
    Pack<T, N> pack = fetch<N>(x + (uint64)item * N);
#pragma unroll
    for (int32 k = 0; k < N; k++) {
        const int64 right = column + k - row;
        if (s.upper ? right < diagonal : right > diagonal) pack.item[k] = 0;
    }
    store<N>(y + (uint64)item * N, pack);
}

struct Sequences {
    uint32 items;
    // Packs of what lies within both axes, and the extent of the second one.
    Divisor inner, second;
    // Steps of a sequence, and whether they are counted along the second axis.
    int32 steps, time_second;
};

template <typename T, int N, typename I>
__device__ __forceinline__ void reverse(T* y, const T* x, const I* lengths, const Sequences& s, int64* flag) {
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.items) return;
    uint32 rest = item;
    const uint32 within = s.inner.take(rest);
    uint32 second = s.second.take(rest), first = rest;
    const int64 length = (int64)lengths[s.time_second ? first : second];
    if (length < 0 || length > s.steps) return complain(flag, length);
    uint32& time = s.time_second ? second : first;
    if (time < length) time = (uint32)length - 1 - time;
    const uint64 from = ((uint64)first * s.second.size + second) * s.inner.size + within;
    store<N>(y + (uint64)item * N, fetch<N>(x + from * N));
}

struct Grids {
    uint32 items;
    // Places of an image, and the extents of its axes.
    Divisor places, size[3];
    int32 align_corners;
};

// theta applied to the place of each element; the last axis comes first in a place.
template <typename T, int AXES>
__device__ __forceinline__ void affine_grid(T* y, const T* theta, const Grids& s) {
    uint32 rest = blockIdx.x * blockDim.x + threadIdx.x;
    if (rest >= s.items) return;
    y += (uint64)rest * AXES;
    uint32 at = s.places.take(rest);
    theta += (uint64)rest * (AXES * (AXES + 1));
    double along[AXES];
#pragma unroll
    for (int32 k = 0; k < AXES; k++) {
        const Divisor& size = s.size[AXES - 1 - k];
        const double i = size.take(at), extent = size.size;
        // Of one element, the only one is in the middle.
        const double aligned = size.size > 1 ? 2.0 * i / (extent - 1.0) - 1.0 : 0.0;
        along[k] = s.align_corners ? aligned : (2.0 * i + 1.0) / extent - 1.0;
    }
#pragma unroll
    for (int32 row = 0; row < AXES; row++) {
        double sum = 0.0;
#pragma unroll
        for (int32 k = 0; k < AXES; k++) sum += (double)widen(theta[row * (AXES + 1) + k]) * along[k];
        y[row] = Narrow<T>::from(sum + (double)widen(theta[row * (AXES + 1) + AXES]));
    }
}

struct Columns {
    uint32 items;
    // Extents of the image.
    Divisor size[3];
    // Of the block: its extents, how far it moves, how far its elements are apart, where it begins, and its places.
    int32 block[3], stride[3], dilation[3], begin[3], places[3];
};

// Each element of an image adds up what the columns have of it.
template <typename T>
__device__ __forceinline__ void col2im(T* y, const T* x, const Columns& s) {
    typedef typename Wide<T>::type W;
    uint32 rest = blockIdx.x * blockDim.x + threadIdx.x;
    if (rest >= s.items) return;
    y += rest;
    int32 at[3];
#pragma unroll
    for (int32 a = 2; a >= 0; a--) at[a] = s.size[a].take(rest) + s.begin[a];
    const int32 length = s.places[0] * s.places[1] * s.places[2];
    x += (uint64)rest * (s.block[0] * s.block[1] * s.block[2]) * length;
    // Which place of the block has its element `tap` here; -1: none.
    auto place = [&](int32 a, int32 tap) {
        const int32 start = at[a] - tap * s.dilation[a], which = start / s.stride[a];
        return start >= 0 && start % s.stride[a] == 0 && which < s.places[a] ? which : -1;
    };
    W sum = (W)0;
    for (int32 i = 0; i < s.block[0]; i++) {
        const int32 p = place(0, i);
        for (int32 j = 0; j < s.block[1]; j++) {
            const int32 q = place(1, j);
            for (int32 k = 0; k < s.block[2]; k++, x += length) {
                const int32 r = place(2, k);
                if (p >= 0 && q >= 0 && r >= 0) sum += widen(x[(p * s.places[1] + q) * s.places[2] + r]);
            }
        }
    }
    *y = Narrow<T>::from(sum);
}
