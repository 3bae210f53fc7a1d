// Reductions over any axes: the results are numbered along the kept axes, the numbers of each along the reduced ones, both
// in the order of memory. A long reduction to few results is split into parts, which a second kernel joins.

struct Walk {
    int32 results, length;
    // Threads that share a row, or threads next to each other along the innermost kept axis.
    int32 team;
    // How many parts the length is split into, and the length of one.
    int32 parts, part;
    // Extents of the axes, and steps along them in the input and the result.
    int32 kept[4], kept_x[4], kept_y[4];
    int32 reduced[4], reduced_x[4];
};

__device__ __forceinline__ uint64 place(uint32 number, const int32 (&sizes)[4], const int32 (&steps)[4]) {
    uint64 at = 0;
    #pragma unroll
    for (int a = 3; a > 0; a--) {
        // Most walks have one or two axes.
        if (sizes[a] != 1) {
            at += (uint64)(number % sizes[a]) * steps[a];
            number /= sizes[a];
        }
    }
    return at + (uint64)number * steps[0];
}

// EVEN: there is one reduced axis.
template <bool EVEN>
__device__ __forceinline__ uint64 reduced_place(uint32 number, const Walk& s) {
    return EVEN ? (uint64)number * s.reduced_x[3] : place(number, s.reduced, s.reduced_x);
}

template <typename Rule>
__device__ __forceinline__ void give(
    typename Rule::Out* y, typename Rule::Acc* partial, typename Rule::Acc result, uint32 number, const Walk& s
) {
    if (s.parts == 1) {
        y[place(number, s.kept, s.kept_y)] = Rule::finish(result, s.length);
    } else {
        partial[(uint64)number * s.parts + blockIdx.y] = result;
    }
}

// A team has a result; N elements lie next to each other along the innermost reduced axis.
template <typename Rule, int N, bool EVEN, bool BLOCK>
__device__ __forceinline__ void reduce_rows(
    typename Rule::Out* y, const typename Rule::In* x, typename Rule::Acc* partial, const Walk& s
) {
    typedef typename Rule::Acc Acc;
    typedef typename Rule::In In;
    const Member<BLOCK> me(s.team);
    const bool live = me.row < s.results;
    if (live) x += place(me.row, s.kept, s.kept_x);
    const uint32 first = blockIdx.y * s.part, last = live ? min(s.length, first + s.part) : 0;
    Acc acc[N];
    #pragma unroll
    for (int k = 0; k < N; k++) acc[k] = Rule::start();
    #pragma unroll 4
    for (uint32 at = first + me.number * N; at < last; at += me.team * N) {
        const Pack<In, N> pack = *(const Pack<In, N>*)(x + reduced_place<EVEN>(at, s));
        #pragma unroll
        for (int k = 0; k < N; k++) acc[k] = Rule::take(acc[k], pack.item[k], at + k);
    }
    #pragma unroll
    for (int k = 1; k < N; k++) acc[0] = Rule::join(acc[0], acc[k]);
    const Acc result = joined<Rule, BLOCK>(acc[0], me.team);
    if (live && me.number == 0) give<Rule>(y, partial, result, me.row, s);
}

// A thread has N neighbouring results; those above each other share them.
template <typename Rule, int N, bool EVEN>
__device__ __forceinline__ void reduce_columns(
    typename Rule::Out* y, const typename Rule::In* x, typename Rule::Acc* partial, const Walk& s
) {
    typedef typename Rule::Acc Acc;
    typedef typename Rule::In In;
    __shared__ Acc cells[N][256];
    const uint32 lane = threadIdx.x % s.team, row = threadIdx.x / s.team, depth = blockDim.x / s.team;
    const uint32 width = s.kept[3], tiles = (width + s.team * N - 1) / (s.team * N);
    const uint32 column = (blockIdx.x % tiles * s.team + lane) * N;
    const uint32 number = blockIdx.x / tiles * width + column;
    const bool live = column < width;
    if (live) x += place(number, s.kept, s.kept_x);
    const uint32 first = blockIdx.y * s.part, last = live ? min(s.length, first + s.part) : 0;
    Acc acc[N];
    #pragma unroll
    for (int k = 0; k < N; k++) acc[k] = Rule::start();
    #pragma unroll 4
    for (uint32 at = first + row; at < last; at += depth) {
        const Pack<In, N> pack = *(const Pack<In, N>*)(x + reduced_place<EVEN>(at, s));
        #pragma unroll
        for (int k = 0; k < N; k++) acc[k] = Rule::take(acc[k], pack.item[k], at);
    }
    #pragma unroll
    for (int k = 0; k < N; k++) cells[k][threadIdx.x] = acc[k];
    for (uint32 rows = depth >> 1; rows > 0; rows >>= 1) {
        __syncthreads();
        if (row >= rows) continue;
        #pragma unroll
        for (int k = 0; k < N; k++) {
            acc[k] = Rule::join(acc[k], cells[k][threadIdx.x + rows * s.team]);
            cells[k][threadIdx.x] = acc[k];
        }
    }
    if (!live || row > 0) return;
    if (N > 1 && s.parts == 1 && s.kept_y[3] == 1 && number % N == 0 && (uint64)y % sizeof(Pack<typename Rule::Out, N>) == 0) {
        const uint64 to = place(number, s.kept, s.kept_y);
        if (to % N == 0) {
            Pack<typename Rule::Out, N> pack;
            #pragma unroll
            for (int k = 0; k < N; k++) pack.item[k] = Rule::finish(acc[k], s.length);
            *(Pack<typename Rule::Out, N>*)(y + to) = pack;
            return;
        }
    }
    #pragma unroll
    for (int k = 0; k < N; k++) give<Rule>(y, partial, acc[k], number + k, s);
}

// Joins the parts of each result; a warp has one.
template <typename Rule>
__device__ __forceinline__ void reduce_parts(typename Rule::Out* y, const typename Rule::Acc* partial, const Walk& s) {
    const Member<false> me(32);
    const uint32 parts = me.row < s.results ? s.parts : 0;
    typename Rule::Acc acc = Rule::start();
    for (uint32 p = me.number; p < parts; p += 32) acc = Rule::join(acc, partial[(uint64)me.row * s.parts + p]);
    acc = joined<Rule, false>(acc, 32);
    if (parts > 0 && me.number == 0) y[place(me.row, s.kept, s.kept_y)] = Rule::finish(acc, s.length);
}

__device__ __forceinline__ float magnitude(float x) { return fabs(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ int64 magnitude(int64 x) { return x < 0 ? (int64)(0 - (uint64)x) : x; }
__device__ __forceinline__ uint64 magnitude(uint64 x) { return x; }

__device__ __forceinline__ float average(float sum, uint32 length) { return sum / (float)length; }
__device__ __forceinline__ double average(double sum, uint32 length) { return sum / (double)length; }
// Of no integers it is 0.
__device__ __forceinline__ int64 average(int64 sum, uint32 length) {
    return length ? (int64)((double)sum / (double)length) : 0;
}
__device__ __forceinline__ uint64 average(uint64 sum, uint32 length) {
    return length ? (uint64)((double)sum / (double)length) : 0;
}

// A number for each row: `before` of each element, joined, and `after` of that.
#define RULE(name, nothing, before, both, after)                                                    \
    template <typename T>                                                                           \
    struct name {                                                                                   \
        typedef T In;                                                                               \
        typedef T Out;                                                                              \
        typedef typename Total<T>::type Acc;                                                        \
        static __device__ __forceinline__ Acc start() { return (Acc)(nothing); }                    \
        static __device__ __forceinline__ Acc join(Acc a, Acc b) { return both; }                   \
        static __device__ __forceinline__ Acc take(Acc acc, T element, uint32) {                    \
            const Acc x = (Acc)widen(element);                                                      \
            return join(acc, before);                                                               \
        }                                                                                           \
        static __device__ __forceinline__ T finish(Acc x, uint32 length) {                          \
            return Narrow<T>::from(after);                                                          \
        }                                                                                           \
    };
RULE(ReduceSum, 0, x, a + b, x)
RULE(ReduceMean, 0, x, a + b, average(x, length))
RULE(ReduceMax, Limits<T>::lowest(), x, f_max(a, b), x)
RULE(ReduceMin, Limits<T>::highest(), x, f_min(a, b), x)
RULE(ReduceProd, 1, x, a* b, x)
RULE(ReduceL1, 0, magnitude(x), a + b, x)
RULE(ReduceL2, 0, x* x, a + b, sqrt(x))
RULE(ReduceSumSquare, 0, x* x, a + b, x)
RULE(ReduceLogSum, 0, x, a + b, log(x))

// The mean of what integers stand for; SCALE has the bits of a float.
template <typename Q, typename T, int32 SCALE, int32 ZERO>
struct MeanOf8Bits {
    typedef Q In;
    typedef T Out;
    typedef int64 Acc;
    static __device__ __forceinline__ Acc start() { return 0; }
    static __device__ __forceinline__ Acc join(Acc a, Acc b) { return a + b; }
    static __device__ __forceinline__ Acc take(Acc acc, Q element, uint32) { return acc + element; }
    static __device__ __forceinline__ T finish(Acc sum, uint32 length) {
        return Narrow<T>::from(__int_as_float(SCALE) * ((float)(sum - (int64)ZERO * length) / (float)length));
    }
};

template <typename T>
struct ReduceLogSumExp {
    typedef T In;
    typedef T Out;
    typedef typename Wide<T>::type W;
    // The sum is over exp(x - shift(most)).
    struct Acc {
        W most, sum;
    };
    static __device__ __forceinline__ bool infinite(W x) { return x == Limits<W>::lowest() || x == Limits<W>::highest(); }
    static __device__ __forceinline__ W shift(W most) { return infinite(most) ? (W)0 : most; }
    static __device__ __forceinline__ Acc start() { return {Limits<W>::lowest(), (W)0}; }
    static __device__ __forceinline__ W moved(Acc acc, W to) {
        return acc.sum == (W)0 ? (W)0 : acc.sum * exponential<T>(shift(acc.most) - to);
    }
    static __device__ __forceinline__ Acc join(Acc a, Acc b) {
        const W most = f_max(a.most, b.most), to = shift(most);
        return {most, moved(a, to) + moved(b, to)};
    }
    static __device__ __forceinline__ Acc take(Acc acc, T element, uint32) {
        const W x = widen(element);
        return join(acc, {x, infinite(x) ? f_max(x, (W)0) : (W)1});
    }
    static __device__ __forceinline__ T finish(Acc acc, uint32) { return Narrow<T>::from(log(acc.sum) + shift(acc.most)); }
};

// The place of the best number: NaN before all others, of equal ones the first, or the LAST.
template <typename T, bool GREATEST, bool LAST>
struct Arg {
    typedef T In;
    typedef int64 Out;
    typedef typename Total<T>::type V;
    struct Acc {
        V value;
        // Less than 0 before there is one.
        int32 at;
    };
    static __device__ __forceinline__ Acc start() { return {(V)0, -1}; }
    static __device__ __forceinline__ bool beats(Acc a, Acc b) {
        if (a.at < 0 || b.at < 0) return b.at < 0;
        const bool nan = a.value != a.value;
        if (nan != (b.value != b.value)) return nan;
        if (!nan && a.value != b.value) return GREATEST ? a.value > b.value : a.value < b.value;
        return LAST ? a.at > b.at : a.at < b.at;
    }
    static __device__ __forceinline__ Acc join(Acc a, Acc b) { return beats(a, b) ? a : b; }
    static __device__ __forceinline__ Acc take(Acc acc, T element, uint32 at) {
        return join(acc, {(V)widen(element), (int32)at});
    }
    static __device__ __forceinline__ int64 finish(Acc acc, uint32) { return acc.at; }
};
