// Resampling along any axes: tables say which elements of the source each one of the result is made of.

struct Axis {
    // Of the result; of the last axis, in packs.
    Divisor size;
    // Strides in elements.
    int32 to, from;
    // Where its table begins, and how many neighbours it has for each element; without a table the axis stays as it is.
    int32 table, taps;
};

template <int AXES>
struct Resampling {
    uint32 items;
    Axis axis[AXES];
};

// A neighbour along an axis; its place is negative where the element lies outside of the source.
template <typename W>
struct alignas(2 * sizeof(W)) Tap {
    int32 place;
    W weight;
};

// Finds the places of a pack along all axes, and where it belongs in the result.
template <int N, int AXES, typename T>
__device__ __forceinline__ T* locate(T* y, uint32 item, int32 (&at)[AXES], const Resampling<AXES>& s) {
#pragma unroll
    for (int32 a = AXES - 1; a >= 0; a--) {
        at[a] = a == 0 ? item : s.axis[a].size.take(item);
        if (a == AXES - 1) at[a] *= N;
        y += (uint64)at[a] * s.axis[a].to;
    }
    return y;
}

template <typename T, int N, int AXES>
__device__ __forceinline__ void nearest(T* y, const T* x, const Tap<float>* taps, T outside, const Resampling<AXES>& s) {
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.items) return;
    int32 at[AXES];
    y = locate<N>(y, item, at, s);
    bool inside = true;
#pragma unroll
    for (int32 a = 0; a < AXES; a++) {
        const int32 place = s.axis[a].taps == 0 ? at[a] : taps[s.axis[a].table + at[a]].place;
        inside &= place >= 0;
        x += (int64)place * s.axis[a].from;
    }
    Pack<T, N> pack;
    if (inside) {
        pack = fetch<N>(x);
    } else {
#pragma unroll
        for (int32 k = 0; k < N; k++) pack.item[k] = outside;
    }
    store<N>(y, pack);
}

// Adds the neighbours along axis A and those behind it.
template <int A, int N, int AXES, typename T, typename W>
__device__ __forceinline__ bool blend(W (&sums)[N], const T* x, W weight, const Tap<W>* taps, const int32 (&at)[AXES],
                                      const Resampling<AXES>& s) {
    if constexpr (A == AXES) {
        const Pack<T, N> pack = fetch<N>(x);
#pragma unroll
        for (int32 k = 0; k < N; k++) sums[k] += weight * widen(pack.item[k]);
        return true;
    } else {
        const Axis& axis = s.axis[A];
        if (axis.taps == 0) return blend<A + 1>(sums, x + (uint64)at[A] * axis.from, weight, taps, at, s);
        const Tap<W>* own = taps + axis.table + at[A] * axis.taps;
        for (int32 k = 0; k < axis.taps; k++) {
            const Tap<W> tap = own[k];
            if (tap.place < 0) return false;
            // An element without weight may be infinite.
            if (tap.weight == (W)0) continue;
            const T* there = x + (uint64)tap.place * axis.from;
            if (!blend<A + 1>(sums, there, weight * tap.weight, taps, at, s)) return false;
        }
        return true;
    }
}

template <typename T, int N, int AXES, typename W>
__device__ __forceinline__ void weighted(T* y, const T* x, const Tap<W>* taps, T outside, const Resampling<AXES>& s) {
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.items) return;
    int32 at[AXES];
    y = locate<N>(y, item, at, s);
    W sums[N] = {};
    const bool inside = blend<0>(sums, x, (W)1, taps, at, s);
    Pack<T, N> pack;
#pragma unroll
    for (int32 k = 0; k < N; k++) pack.item[k] = inside ? Narrow<T>::from(sums[k]) : outside;
    store<N>(y, pack);
}
