// Softmax and its logarithm along any axis: rows in registers, longer ones in two passes, and columns side by side.

struct Lines {
    // Numbers of a line lie `inner` elements apart; `inner` lines lie next to each other, `outer` times.
    int32 outer, length, inner;
    // Threads that share a row, or threads next to each other along `inner`.
    int32 team;
};

// The greatest of some numbers, and the sum of exp(x - greatest) over them. Where the greatest is infinite the sum does
// not count: the results are NaN then, or (no number was seen yet) another sum replaces it.
template <typename T>
struct Powers {
    typedef typename Wide<T>::type W;
    struct Acc {
        W most, sum;
    };
    static __device__ __forceinline__ Acc start() { return {Limits<W>::lowest(), (W)0}; }
    // What is taken off before the exponential: minus infinity less itself would be NaN.
    static __device__ __forceinline__ W shift(W most) { return most == Limits<W>::lowest() ? (W)0 : most; }
    static __device__ __forceinline__ Acc join(Acc a, Acc b) {
        const W most = f_max(a.most, b.most), less = shift(most);
        return {most, a.sum * exponential<T>(a.most - less) + b.sum * exponential<T>(b.most - less)};
    }
    template <int N>
    static __device__ __forceinline__ void take(Acc& acc, const W (&x)[N]) {
        W most = acc.most;
        #pragma unroll
        for (int k = 0; k < N; k++) most = f_max(most, x[k]);
        const W less = shift(most);
        W sum = acc.sum * exponential<T>(acc.most - less);
        #pragma unroll
        for (int k = 0; k < N; k++) sum += exponential<T>(x[k] - less);
        acc = {most, sum};
    }
};

template <typename T, bool LOGARITHM, typename W>
__device__ __forceinline__ W soft(W x, W most, W factor) {
    // In this order: next to a great maximum the logarithm would lose its digits.
    return LOGARITHM ? x - most - factor : exponential<T>(x - most) * factor;
}
template <bool LOGARITHM, typename W>
__device__ __forceinline__ W soft_factor(W sum) {
    return LOGARITHM ? log(sum) : (W)1 / sum;
}

// Each thread of a team holds PACKS packs of a row.
template <typename T, int N, int PACKS, bool BLOCK, bool LOGARITHM>
__device__ __forceinline__ void softmax_held(T* y, const T* x, const Lines& s) {
    typedef typename Wide<T>::type W;
    const Member<BLOCK> me(s.team);
    const uint64 start = (uint64)me.row * s.length;
    const uint32 length = me.row < s.outer ? s.length : 0;
    W v[PACKS][N];
    W most = Limits<W>::lowest();
    #pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint32 at = (p * me.team + me.number) * N;
        if (at < length) {
            load<T, N>(v[p], x + start + at);
        } else {
            #pragma unroll
            for (int k = 0; k < N; k++) v[p][k] = Limits<W>::lowest();
        }
        #pragma unroll
        for (int k = 0; k < N; k++) most = f_max(most, v[p][k]);
    }
    most = joined<Greatest<W>, BLOCK>(most, me.team);
    W sum = (W)0;
    #pragma unroll
    for (int p = 0; p < PACKS; p++) {
        #pragma unroll
        for (int k = 0; k < N; k++) {
            const W power = exponential<T>(v[p][k] - most);
            if (!LOGARITHM) v[p][k] = power;
            sum += power;
        }
    }
    const W factor = soft_factor<LOGARITHM>(joined<Sum<W>, BLOCK>(sum, me.team));
    #pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint32 at = (p * me.team + me.number) * N;
        if (at >= length) continue;
        #pragma unroll
        for (int k = 0; k < N; k++) v[p][k] = LOGARITHM ? v[p][k] - most - factor : v[p][k] * factor;
        store<T, N>(y + start + at, v[p]);
    }
}

// The two passes over a row.
template <typename T>
struct Gather {
    const T* x;
    typename Powers<T>::Acc acc;
    template <int N>
    __device__ __forceinline__ void visit(uint32 at) {
        typename Wide<T>::type v[N];
        load<T, N>(v, x + at);
        Powers<T>::take(acc, v);
    }
};
template <typename T, bool LOGARITHM>
struct Finish {
    T* y;
    const T* x;
    typename Wide<T>::type most, factor;
    template <int N>
    __device__ __forceinline__ void visit(uint32 at) {
        typename Wide<T>::type v[N];
        load<T, N>(v, x + at);
        #pragma unroll
        for (int k = 0; k < N; k++) v[k] = soft<T, LOGARITHM>(v[k], most, factor);
        store<T, N>(y + at, v);
    }
};

// A block reads its row twice.
template <typename T, int N, bool LOGARITHM>
__device__ __forceinline__ void softmax_streamed(T* y, const T* x, const Lines& s) {
    const uint64 start = (uint64)blockIdx.x * s.length;
    Gather<T> gather = {x + start, Powers<T>::start()};
    walk<N>(start, s.length, threadIdx.x, blockDim.x, gather);
    const typename Powers<T>::Acc all = joined<Powers<T>, true>(gather.acc, 0);
    Finish<T, LOGARITHM> finish = {y + start, x + start, all.most, soft_factor<LOGARITHM>(all.sum)};
    walk<N>(start, s.length, threadIdx.x, blockDim.x, finish);
}

// Threads next to each other have neighbouring columns; those above each other share them.
template <typename T, int N, bool LOGARITHM>
__device__ __forceinline__ void softmax_columns(T* y, const T* x, const Lines& s) {
    typedef typename Wide<T>::type W;
    typedef typename Powers<T>::Acc Acc;
    __shared__ Acc cells[N][256];
    const uint32 lane = threadIdx.x % s.team, row = threadIdx.x / s.team, depth = blockDim.x / s.team;
    const uint32 tiles = (s.inner + s.team * N - 1) / (s.team * N);
    const uint32 column = (blockIdx.x % tiles * s.team + lane) * N;
    const uint32 length = column < s.inner ? s.length : 0;
    const uint64 start = (uint64)(blockIdx.x / tiles) * s.length * s.inner + column;
    x += start;
    y += start;
    Acc acc[N];
    #pragma unroll
    for (int k = 0; k < N; k++) acc[k] = Powers<T>::start();
    // Several at once: a sum is brought to a new greatest number once for all of them.
    constexpr int ROWS = 4;
    for (uint32 i = row; i < length; i += depth * ROWS) {
        W v[ROWS][N];
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (i + r * depth < length) {
                load<T, N>(v[r], x + (uint64)(i + r * depth) * s.inner);
            } else {
                #pragma unroll
                for (int k = 0; k < N; k++) v[r][k] = Limits<W>::lowest();
            }
        }
        #pragma unroll
        for (int k = 0; k < N; k++) {
            W column[ROWS];
            #pragma unroll
            for (int r = 0; r < ROWS; r++) column[r] = v[r][k];
            Powers<T>::take(acc[k], column);
        }
    }
    #pragma unroll
    for (int k = 0; k < N; k++) cells[k][threadIdx.x] = acc[k];
    for (uint32 rows = depth >> 1; rows > 0; rows >>= 1) {
        __syncthreads();
        if (row >= rows) continue;
        #pragma unroll
        for (int k = 0; k < N; k++) {
            Acc& mine = cells[k][threadIdx.x];
            mine = Powers<T>::join(mine, cells[k][threadIdx.x + rows * s.team]);
        }
    }
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < N; k++) {
        acc[k] = cells[k][lane];
        acc[k].sum = soft_factor<LOGARITHM>(acc[k].sum);
    }
    #pragma unroll 4
    for (uint32 i = row; i < length; i += depth) {
        W v[N];
        load<T, N>(v, x + (uint64)i * s.inner);
        #pragma unroll
        for (int k = 0; k < N; k++) v[k] = soft<T, LOGARITHM>(v[k], acc[k].most, acc[k].sum);
        store<T, N>(y + (uint64)i * s.inner, v);
    }
}
