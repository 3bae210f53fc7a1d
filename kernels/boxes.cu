// Boxes of a tensor: cut out, padded, repeated. Along each axis an element of the result stands for one of the source.

#define FILLED 0
#define EDGE 1
#define REFLECTED 2
#define WRAPPED 3

struct Axis {
    // Of the result; of the last axis, in packs.
    Divisor size;
    // Of the source: how many there are, which comes first, and how far on the next is.
    int32 extent, first, step;
    // What stands outside.
    int32 border;
    // Strides in elements.
    int32 to, from;

    // The place in the source of one in the result; -1: none.
    __device__ __forceinline__ int32 source(int32 at) const {
        int32 place = first + at * step;
        if ((uint32)place < (uint32)extent) return place;
        if (border == EDGE) return place < 0 ? 0 : extent - 1;
        if (border == FILLED) return -1;
        const int32 period = border == WRAPPED ? extent : max(2 * (extent - 1), 1);
        place %= period;
        if (place < 0) place += period;
        return border == WRAPPED ? place : min(min(place, period - place), extent - 1);
    }
};

template <int AXES>
struct Boxes {
    uint32 items;
    Axis axis[AXES];
};

// A pack of N neighbours of the result a thread.
template <typename T, int N, int AXES>
__device__ __forceinline__ void boxes(T* y, const T* x, T fill, const Boxes<AXES>& s) {
    uint32 rest = blockIdx.x * blockDim.x + threadIdx.x;
    if (rest >= s.items) return;
    const Axis& last = s.axis[AXES - 1];
    const int32 start = last.size.take(rest) * N;
    y += start;
    bool inside = true;
#pragma unroll
    for (int32 a = AXES - 2; a >= 0; a--) {
        const int32 at = a == 0 ? rest : s.axis[a].size.take(rest), place = s.axis[a].source(at);
        inside &= place >= 0;
        y += (uint64)at * s.axis[a].to;
        x += (int64)place * s.axis[a].from;
    }
    Pack<T, N> pack;
    int32 first = last.first + start * last.step;
    if (last.border == WRAPPED && first >= last.extent) first %= last.extent;
    if (N > 1 && inside && last.step == 1 && last.from == 1 && first >= 0 && first <= last.extent - N) {
        pack = fetch<N>(x + first);
    } else {
#pragma unroll
        for (int32 k = 0; k < N; k++) {
            const int32 place = inside ? last.source(start + k) : -1;
            pack.item[k] = place >= 0 ? x[(int64)place * last.from] : fill;
        }
    }
    store<N>(y, pack);
}
