// Convolutions over one pixel from few channels to few, of tensors that lie channel by channel: a thread reads some neighbouring
// pixels of all channels once. Behind `types.cuh`.

struct Planes {
    // Packs of a channel, and how many blocks they take; pixels of a channel.
    int32 packs, blocks, pixels;
    float numbers[2];
};

// The weights as they are computed with, a row for each result; THREADS bring them together.
template <int TERMS, int THREADS, typename T>
__device__ __forceinline__ void widen_weights(typename Wide<T>::type (&into)[TERMS], const T* w) {
    for (int32 i = threadIdx.x; i < TERMS; i += THREADS) into[i] = widen(w[i]);
}

// V pixels a thread. AFTER: what is done behind the activation, of `After`.
template <int CHANNELS, int RESULTS, int V, int ACTIVATION, int32 AFTER, typename T>
__device__ __forceinline__ void mix_planes(T* y, const T* x, const typename Wide<T>::type (&w)[RESULTS * CHANNELS], const T* bias,
                                           const T* residual, const T* scale, const T* shift, const Planes& s) {
    typedef typename Wide<T>::type W;
    const int32 pack = blockIdx.x % s.blocks * blockDim.x + threadIdx.x;
    if (pack >= s.packs) return;
    const uint64 image = blockIdx.x / s.blocks, pixel = (uint64)pack * V;
    W read[CHANNELS][V];
    x += image * CHANNELS * s.pixels + pixel;
#pragma unroll
    for (int32 c = 0; c < CHANNELS; c++) widen_pack(read[c], *(const Pack<T, V>*)(x + (uint64)c * s.pixels));
    uint64 at = image * RESULTS * s.pixels + pixel;
#pragma unroll
    for (int32 r = 0; r < RESULTS; r++, at += s.pixels) {
        const W first = bias ? widen(bias[r]) : (W)0;
        const W factor = AFTER & After::SCALE ? widen(scale[r]) : (W)1, summand = AFTER & After::SHIFT ? widen(shift[r]) : (W)0;
        Pack<T, V> others = {}, given;
        if (residual) others = *(const Pack<T, V>*)(residual + at);
#pragma unroll
        for (int32 k = 0; k < V; k++) {
            W sum = first;
#pragma unroll
            for (int32 c = 0; c < CHANNELS; c++) sum += w[r * CHANNELS + c] * read[c][k];
            const W other = widen(others.item[k]);
            if (residual && (AFTER & After::RESIDUAL) == 0) sum += other;
            given.item[k] = Narrow<T>::from(f_after<AFTER>(f_activated(sum, ACTIVATION, s.numbers), factor, summand, other));
        }
        *(Pack<T, V>*)(y + at) = given;
    }
}
