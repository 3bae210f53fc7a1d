// A long axis and a short one that change places, as those of three colours: a thread turns a strip in its registers.

// Axes around those two.
#define AROUND 4

struct Strips {
    uint32 items;
    // Packs of the long axis.
    Divisor packs;
    // From one element of the short axis to the next, where it is not innermost.
    uint32 apart;
    Divisor size[AROUND];
    uint32 to[AROUND], from[AROUND];
};

// JOIN: the SHORT axis becomes the innermost one; else it was that. Elements of the innermost one lie side by side.
template <typename T, int SHORT, int N, bool JOIN>
__device__ __forceinline__ void strip(T* __restrict__ y, const T* __restrict__ x, const Strips& s) {
    uint32 rest = blockIdx.x * blockDim.x + threadIdx.x;
    if (rest >= s.items) return;
    const uint32 along = s.packs.take(rest) * N;
#pragma unroll
    for (int32 axis = AROUND - 1; axis >= 0; axis--) {
        const uint32 place = axis == 0 ? rest : s.size[axis].take(rest);
        y += (uint64)place * s.to[axis];
        x += (uint64)place * s.from[axis];
    }
    x += (uint64)along * (JOIN ? 1 : SHORT);
    y += (uint64)along * (JOIN ? SHORT : 1);
    Pack<T, N> read[SHORT], turned[SHORT];
#pragma unroll
    for (int32 k = 0; k < SHORT; k++) read[k] = fetch<N>(x + (uint64)k * (JOIN ? s.apart : N));
#pragma unroll
    for (int32 i = 0; i < SHORT * N; i++) {
        // Element i of the strip where the short axis is innermost.
        const int32 k = i % SHORT, n = i / SHORT;
        if (JOIN) {
            turned[i / N].item[i % N] = read[k].item[n];
        } else {
            turned[k].item[n] = read[i / N].item[i % N];
        }
    }
#pragma unroll
    for (int32 k = 0; k < SHORT; k++) store<N>(y + (uint64)k * (JOIN ? N : s.apart), turned[k]);
}
