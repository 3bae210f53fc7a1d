// Groups of channels brought to mean 0 and variance 1, in either layout: sums of parts of the groups, then mean and factor
// of each group, then all elements.

struct Groups {
    double epsilon;
    int32 images, channels, places, groups;
    // Channels of a group, and sums that there are of one.
    int32 each, sums;
    // How many parts the sums are split into, and the length of one.
    int32 parts, part;
    // Threads next to each other along the channels.
    int32 lanes;
};

template <typename W>
struct Pair {
    W first, second;
};

// The sum of distances from a number near the mean, and of their squares.
template <typename W>
struct Moments {
    typedef Pair<W> Acc;
    static __device__ __forceinline__ Acc start() { return {(W)0, (W)0}; }
    static __device__ __forceinline__ Acc join(Acc a, Acc b) { return {a.first + b.first, a.second + b.second}; }
    static __device__ __forceinline__ void take(Acc& acc, W away) {
        acc.first += away;
        acc.second += away * away;
    }
};

// Row-major: a group is one run of memory, of which a block has a part.
template <typename T, int N>
__device__ __forceinline__ void group_sums(const T* x, Pair<typename Wide<T>::type>* sums, const Groups& s) {
    typedef typename Wide<T>::type W;
    const uint32 length = s.each * s.places;
    x += (uint64)blockIdx.x * length;
    const uint32 first = blockIdx.y * s.part, last = min(length, first + s.part);
    const W near = widen(x[0]);
    Pair<W> acc = Moments<W>::start();
    #pragma unroll 4
    for (uint32 at = first + threadIdx.x * N; at < last; at += blockDim.x * N) {
        W v[N];
        load<T, N>(v, x + at);
        #pragma unroll
        for (int k = 0; k < N; k++) Moments<W>::take(acc, v[k] - near);
    }
    acc = joined<Moments<W>, true>(acc, 0);
    if (threadIdx.x == 0) sums[(uint64)blockIdx.x * s.parts + blockIdx.y] = acc;
}

// Channels last: threads next to each other have neighbouring channels, each of which has sums of its own.
template <typename T, int N>
__device__ __forceinline__ void channel_sums(const T* x, Pair<typename Wide<T>::type>* sums, const Groups& s) {
    typedef typename Wide<T>::type W;
    __shared__ Pair<W> cells[N][256];
    const uint32 lane = threadIdx.x % s.lanes, row = threadIdx.x / s.lanes, depth = blockDim.x / s.lanes;
    const uint32 tiles = (s.channels + s.lanes * N - 1) / (s.lanes * N);
    const uint32 image = blockIdx.x / tiles, channel = (blockIdx.x % tiles * s.lanes + lane) * N;
    const bool live = channel < s.channels;
    x += (uint64)image * s.places * s.channels;
    const uint32 first = blockIdx.y * s.part, last = live ? min(s.places, first + s.part) : 0;
    W near[N];
    Pair<W> acc[N];
    #pragma unroll
    for (int k = 0; k < N; k++) {
        near[k] = live ? widen(x[(channel + k) / s.each * s.each]) : (W)0;
        acc[k] = Moments<W>::start();
    }
    #pragma unroll 4
    for (uint32 at = first + row; at < last; at += depth) {
        W v[N];
        load<T, N>(v, x + (uint64)at * s.channels + channel);
        #pragma unroll
        for (int k = 0; k < N; k++) Moments<W>::take(acc[k], v[k] - near[k]);
    }
    #pragma unroll
    for (int k = 0; k < N; k++) cells[k][threadIdx.x] = acc[k];
    for (uint32 rows = depth >> 1; rows > 0; rows >>= 1) {
        __syncthreads();
        if (row >= rows) continue;
        #pragma unroll
        for (int k = 0; k < N; k++) {
            acc[k] = Moments<W>::join(acc[k], cells[k][threadIdx.x + rows * s.lanes]);
            cells[k][threadIdx.x] = acc[k];
        }
    }
    if (!live || row > 0) return;
    #pragma unroll
    for (int k = 0; k < N; k++) {
        sums[((uint64)image * s.channels + channel + k) * s.parts + blockIdx.y] = acc[k];
    }
}

// Mean and factor of each group, which a warp has; they lie behind the sums.
template <typename T, bool CHANNELS_LAST>
__device__ __forceinline__ void group_factors(const T* x, Pair<typename Wide<T>::type>* sums, const Groups& s) {
    typedef typename Wide<T>::type W;
    const Member<false> me(32);
    const uint32 count = s.images * s.groups;
    const bool live = me.row < count;
    Pair<W> acc = Moments<W>::start();
    for (uint32 i = me.number; live && i < s.sums; i += 32) {
        acc = Moments<W>::join(acc, sums[(uint64)me.row * s.sums + i]);
    }
    acc = joined<Moments<W>, false>(acc, 32);
    if (!live || me.number > 0) return;
    const uint64 image = me.row / s.groups, group = me.row % s.groups;
    const W near = widen(x[image * s.places * s.channels + group * s.each * (CHANNELS_LAST ? 1 : s.places)]);
    const W length = (W)s.each * (W)s.places, away = acc.first / length;
    const W variance = f_max(acc.second / length - away * away, (W)0);
    sums[(uint64)count * s.sums + me.row] = {near + away, (W)1 / sqrt(variance + (W)s.epsilon)};
}

// A pack of elements a thread; row-major it lies in one channel.
template <typename T, int N, bool CHANNELS_LAST, int ACTIVATION>
__device__ __forceinline__ void group_apply(
    T* y, const T* x, const T* scale, const T* bias, const Pair<typename Wide<T>::type>* sums, const Groups& s
) {
    typedef typename Wide<T>::type W;
    const uint64 at = ((uint64)blockIdx.x * blockDim.x + threadIdx.x) * N;
    const uint32 count = s.images * s.groups;
    if (at >= (uint64)s.images * s.channels * s.places) return;
    const Pair<W>* factors = sums + (uint64)count * s.sums;
    W v[N], scales[N], biases[N];
    Pair<W> own[N];
    load<T, N>(v, x + at);
    if constexpr (CHANNELS_LAST) {
        const uint32 number = (uint32)at, channel = number % s.channels;
        factors += (uint64)(number / s.channels / s.places) * s.groups;
        load<T, N>(scales, scale + channel);
        load<T, N>(biases, bias + channel);
        own[0] = factors[channel / s.each];
        const bool same = s.each % N == 0;
        #pragma unroll
        for (int k = 1; k < N; k++) own[k] = same ? own[0] : factors[(channel + k) / s.each];
    } else {
        const uint32 plane = (uint32)at / s.places, channel = plane % s.channels;
        own[0] = factors[plane / s.each];
        #pragma unroll
        for (int k = 0; k < N; k++) {
            own[k] = own[0];
            scales[k] = widen(scale[channel]);
            biases[k] = widen(bias[channel]);
        }
    }
    #pragma unroll
    for (int k = 0; k < N; k++) {
        v[k] = activated<ACTIVATION>((v[k] - own[k].first) * own[k].second * scales[k] + biases[k]);
    }
    store<T, N>(y + at, v);
}
