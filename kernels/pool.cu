// Pooling over windows: a thread has N neighbouring results, which are channels where these lie innermost.

struct Window {
    // Threads: packs of results.
    int32 results;
    // Extents of the result: channels (in packs where they are innermost) and three spatial axes.
    int32 channels, out[3];
    // Steps of the input along batch, channels and the spatial axes.
    int32 x_stride[5];
    int32 in[3], kernel[3], stride[3], dilation[3], begin[3];
    // Where the padding ends that an average counts.
    int32 end[3];
    // Steps by which MaxPool's indices count along batch, channels and the spatial axes.
    int32 counting[5];
    int32 power;
};

// How many steps reach so far; most are of length 1, and a division takes long.
__device__ __forceinline__ int32 steps_to(int32 reach, int32 step) { return step == 1 ? reach : (reach + step - 1) / step; }

// Taps of a window along one axis that lie within the elements.
struct Taps {
    int32 start, from, to;
    __device__ __forceinline__ Taps(const Window& s, int32 axis, int32 place) {
        start = place * s.stride[axis] - s.begin[axis];
        from = start < 0 ? steps_to(-start, s.dilation[axis]) : 0;
        to = before(s, axis, s.in[axis]);
    }
    // How many begin before this place.
    __device__ __forceinline__ int32 before(const Window& s, int32 axis, int32 place) const {
        const int32 reach = place - start;
        return reach <= 0 ? 0 : min(s.kernel[axis], steps_to(reach, s.dilation[axis]));
    }
    __device__ __forceinline__ int32 count() const { return max(to - from, 0); }
};

// Where a result lies: batch, channel and spatial axes.
template <bool CHANNELS_LAST>
struct Place {
    int32 batch, channel, at[3];
    __device__ __forceinline__ Place(const Window& s, uint32 number) {
        if (CHANNELS_LAST) {
            channel = number % s.channels;
            number /= s.channels;
        }
        at[2] = number % s.out[2];
        number /= s.out[2];
        at[1] = number % s.out[1];
        number /= s.out[1];
        at[0] = 0;
        if (s.out[0] != 1) {
            at[0] = number % s.out[0];
            number /= s.out[0];
        }
        if (!CHANNELS_LAST) {
            channel = number % s.channels;
            number /= s.channels;
        }
        batch = number;
    }
};

template <typename T>
struct Lowest {
    static __device__ __forceinline__ T value() {
        return (T)-1 < (T)0 ? (T)((uint64)1 << (8 * sizeof(T) - 1)) : (T)0;
    }
};
#define BOTTOMLESS(T)                                                        \
    template <>                                                              \
    struct Lowest<T> {                                                       \
        static __device__ __forceinline__ T value() {                        \
            return Narrow<T>::from(-__longlong_as_double(0x7ff0000000000000ll)); \
        }                                                                    \
    };
BOTTOMLESS(double)
BOTTOMLESS(float)
BOTTOMLESS(float16)
BOTTOMLESS(bfloat16)

template <typename T>
__device__ __forceinline__ T greater(T a, T b) {
    return f_max(a, b);
}
__device__ __forceinline__ float16 greater(float16 a, float16 b) { return widen(a) > widen(b) || widen(a) != widen(a) ? a : b; }
__device__ __forceinline__ bfloat16 greater(bfloat16 a, bfloat16 b) { return widen(a) > widen(b) || widen(a) != widen(a) ? a : b; }

// Elements that the GPU compares at once, as parts of a word, of which these are lowest.
template <typename T>
struct Word {
    static constexpr int ELEMENTS = 1;
};
#define WORD(T, COUNT, LOWEST, INSTRUCTION)                             \
    template <>                                                         \
    struct Word<T> {                                                    \
        static constexpr int ELEMENTS = COUNT;                          \
        static constexpr uint32 NOTHING = LOWEST;                       \
        static __device__ __forceinline__ void take(uint32& a, uint32 b) { \
            asm(INSTRUCTION " %0, %0, %1;" : "+r"(a) : "r"(b));         \
        }                                                               \
    };
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
WORD(float16, 2, 0xfc00fc00u, "max.NaN.f16x2")
WORD(bfloat16, 2, 0xff80ff80u, "max.NaN.bf16x2")
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
WORD(int8, 4, 0x80808080u, "max.s16x2")
WORD(uint8, 4, 0u, "max.u16x2")
#endif

// The greatest of N elements each, in the form in which they are compared.
template <typename T, int N, int ELEMENTS = N % Word<T>::ELEMENTS == 0 ? Word<T>::ELEMENTS : 1>
struct Maxima {
    typedef Pack<uint32, N / 2> Elements;
    Elements pairs;
    static __device__ __forceinline__ uint32 lowest() { return Word<T>::NOTHING; }
    __device__ __forceinline__ explicit Maxima(const Elements& x) : pairs(x) {}
    __device__ __forceinline__ void take(const Maxima& x) {
        #pragma unroll
        for (int k = 0; k < N / 2; k++) Word<T>::take(pairs.item[k], x.pairs.item[k]);
    }
    __device__ __forceinline__ Elements elements() const { return pairs; }
};
template <typename T, int N>
struct Maxima<T, N, 1> {
    typedef Pack<T, N> Elements;
    Elements all;
    static __device__ __forceinline__ T lowest() { return Lowest<T>::value(); }
    __device__ __forceinline__ explicit Maxima(const Elements& x) : all(x) {}
    __device__ __forceinline__ void take(const Maxima& x) {
        #pragma unroll
        for (int k = 0; k < N; k++) all.item[k] = greater(all.item[k], x.all.item[k]);
    }
    __device__ __forceinline__ Elements elements() const { return all; }
};
// Integers of 8 bits as the upper halves of those of 16: what lies below decides between equals.
template <typename T, int N>
struct Maxima<T, N, 4> {
    typedef Pack<uint32, N / 4> Elements;
    Elements odd, even;
    static __device__ __forceinline__ uint32 lowest() { return Word<T>::NOTHING; }
    __device__ __forceinline__ explicit Maxima(const Elements& x) : odd(x) {
        #pragma unroll
        for (int k = 0; k < N / 4; k++) even.item[k] = x.item[k] << 8;
    }
    __device__ __forceinline__ void take(const Maxima& x) {
        #pragma unroll
        for (int k = 0; k < N / 4; k++) {
            Word<T>::take(odd.item[k], x.odd.item[k]);
            Word<T>::take(even.item[k], x.even.item[k]);
        }
    }
    __device__ __forceinline__ Elements elements() const {
        Elements all;
        #pragma unroll
        for (int k = 0; k < N / 4; k++) all.item[k] = __byte_perm(even.item[k], odd.item[k], 0x7351);
        return all;
    }
};

// What becomes of the elements of a window.
template <typename T, int N>
struct MaxPool {
    typedef typename Maxima<T, N>::Elements Elements;
    // Whether the results of a window's parts give its own, in any order.
    static constexpr bool IN_PARTS = true;
    Maxima<T, N> most;
    __device__ __forceinline__ MaxPool() : most(nothing()) {}
    __device__ __forceinline__ explicit MaxPool(const Elements& x) : most(x) {}
    // What changes no result.
    static __device__ __forceinline__ Elements nothing() {
        Elements lowest;
        #pragma unroll
        for (int k = 0; k < sizeof(lowest) / sizeof(lowest.item[0]); k++) lowest.item[k] = Maxima<T, N>::lowest();
        return lowest;
    }
    __device__ __forceinline__ void take(const MaxPool& part) { most.take(part.most); }
    __device__ __forceinline__ void take(const Elements& x, const Window&) { take(MaxPool(x)); }
    __device__ __forceinline__ Elements finish(int32, const Window&) { return most.elements(); }
};

template <typename T, int N>
struct AveragePool {
    typedef Pack<T, N> Elements;
    static constexpr bool IN_PARTS = false;
    typename Wide<T>::type sum[N];
    __device__ __forceinline__ AveragePool() {
        #pragma unroll
        for (int k = 0; k < N; k++) sum[k] = 0;
    }
    static __device__ __forceinline__ Pack<T, N> nothing() {
        Pack<T, N> pack;
        #pragma unroll
        for (int k = 0; k < N; k++) pack.item[k] = Narrow<T>::from((typename Wide<T>::type)0);
        return pack;
    }
    __device__ __forceinline__ void take(const Pack<T, N>& x, const Window&) {
        #pragma unroll
        for (int k = 0; k < N; k++) sum[k] += widen(x.item[k]);
    }
    __device__ __forceinline__ Pack<T, N> finish(int32 taken, const Window&) {
        Pack<T, N> pack;
        #pragma unroll
        for (int k = 0; k < N; k++) pack.item[k] = Narrow<T>::from(sum[k] / (typename Wide<T>::type)taken);
        return pack;
    }
};

template <typename T, int N>
struct LpPool {
    typedef Pack<T, N> Elements;
    typedef typename Wide<T>::type W;
    W sum[N];
    __device__ __forceinline__ LpPool() {
        #pragma unroll
        for (int k = 0; k < N; k++) sum[k] = 0;
    }
    __device__ __forceinline__ void take(const Pack<T, N>& x, const Window& s) {
        #pragma unroll
        for (int k = 0; k < N; k++) {
            const W size = fabs(widen(x.item[k]));
            sum[k] += s.power == 1 ? size : s.power == 2 ? size * size : pow(size, (W)s.power);
        }
    }
    __device__ __forceinline__ Pack<T, N> finish(int32, const Window& s) {
        Pack<T, N> pack;
        #pragma unroll
        for (int k = 0; k < N; k++) {
            const W all = sum[k];
            pack.item[k] = Narrow<T>::from(s.power == 1 ? all : s.power == 2 ? sqrt(all) : pow(all, (W)1 / (W)s.power));
        }
        return pack;
    }
};

// K: the extent of the window along the last axis, so that its loads are under way together; 0 for any.
template <template <typename, int> class Rule, typename T, int N, int K, bool CHANNELS_LAST, bool COUNTS_PADDING>
__device__ __forceinline__ void pool(T* y, const T* x, const Window& s) {
    const uint32 number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= s.results) return;
    const Place<CHANNELS_LAST> place(s, number);
    const Taps taps[3] = {Taps(s, 0, place.at[0]), Taps(s, 1, place.at[1]), Taps(s, 2, place.at[2])};
    x += (uint64)place.batch * s.x_stride[0] + (uint64)place.channel * N * s.x_stride[1];
    typedef typename Rule<T, N>::Elements Elements;
    Rule<T, N> rule;
    for (int32 a = taps[0].from; a < taps[0].to; a++) {
        const T* plane = x + (uint64)(taps[0].start + a * s.dilation[0]) * s.x_stride[2];
        #pragma unroll 3
        for (int32 b = taps[1].from; b < taps[1].to; b++) {
            const T* line = plane + (uint64)(taps[1].start + b * s.dilation[1]) * s.x_stride[3];
            const int64 step = (int64)s.dilation[2] * s.x_stride[4];
            const T* first = line + (int64)taps[2].start * s.x_stride[4];
            if constexpr (K > 0) {
                #pragma unroll
                for (int c = 0; c < K; c++) {
                    if (c >= taps[2].from && c < taps[2].to) rule.take(*(const Elements*)(first + c * step), s);
                }
            } else {
                #pragma unroll 4
                for (int32 c = taps[2].from; c < taps[2].to; c++) rule.take(*(const Elements*)(first + c * step), s);
            }
        }
    }
    int32 taken = 1;
    #pragma unroll
    for (int a = 0; a < 3; a++) taken *= COUNTS_PADDING ? taps[a].before(s, a, s.end[a]) : taps[a].count();
    *(Elements*)(y + (uint64)number * N) = rule.finish(taken, s);
}

// Windows of K, S apart along one axis, out of what they see: what all of them see is taken once.
template <int K, int S, int R, typename Rule>
__device__ __forceinline__ void slide(Rule (&windows)[R], const Rule (&seen)[(R - 1) * S + K]) {
    const int FIRST = (R - 1) * S;
    const bool SHARING = FIRST < K;
    Rule shared = seen[SHARING ? FIRST : 0];
    #pragma unroll
    for (int a = FIRST + 1; a < K; a++) shared.take(seen[a]);
    #pragma unroll
    for (int i = 0; i < R; i++) {
        windows[i] = SHARING ? shared : seen[i * S];
        #pragma unroll
        for (int a = i * S; a < i * S + K; a++) {
            if (SHARING ? a < FIRST || a >= K : a > i * S) windows[i].take(seen[a]);
        }
    }
}

// Windows of KH by KW, S apart, out of what they see: along the rows, then along the columns where parts give the whole.
template <int KH, int KW, int S, int R, typename Rule>
__device__ __forceinline__ void slide(
    Rule (&windows)[R][R], const typename Rule::Elements (&seen)[(R - 1) * S + KH][(R - 1) * S + KW], const Window& s
) {
    const int ROWS = (R - 1) * S + KH, COLUMNS = (R - 1) * S + KW;
    if constexpr (Rule::IN_PARTS) {
        Rule in_rows[R][ROWS];
        #pragma unroll
        for (int a = 0; a < ROWS; a++) {
            Rule row[COLUMNS], found[R];
            #pragma unroll
            for (int b = 0; b < COLUMNS; b++) row[b] = Rule(seen[a][b]);
            slide<KW, S>(found, row);
            #pragma unroll
            for (int j = 0; j < R; j++) in_rows[j][a] = found[j];
        }
        #pragma unroll
        for (int j = 0; j < R; j++) {
            Rule found[R];
            slide<KH, S>(found, in_rows[j]);
            #pragma unroll
            for (int i = 0; i < R; i++) windows[i][j] = found[i];
        }
    } else {
        #pragma unroll
        for (int a = 0; a < ROWS; a++) {
            #pragma unroll
            for (int i = 0; i < R; i++) {
                if (a < i * S || a >= i * S + KH) continue;
                #pragma unroll
                for (int j = 0; j < R; j++) {
                    #pragma unroll
                    for (int b = 0; b < KW; b++) windows[i][j].take(seen[a][j * S + b], s);
                }
            }
        }
    }
}

// Windows of KH by KW, S apart, of two spatial axes with channels innermost: a thread has R by R neighbouring results, whose
// windows share elements, so that each is loaded once and many loads are under way together.
template <template <typename, int> class Rule, typename T, int N, int KH, int KW, int S, int R, bool COUNTS_PADDING>
__device__ __forceinline__ void pool_block(T* y, const T* x, const Window& s) {
    const int ROWS = (R - 1) * S + KH, COLUMNS = (R - 1) * S + KW;
    uint32 number = blockIdx.x * blockDim.x + threadIdx.x;
    const int32 across = (s.out[2] + R - 1) / R, down = (s.out[1] + R - 1) / R;
    const int32 channel = number % s.channels;
    number /= s.channels;
    const int32 left = number % across * R;
    number /= across;
    const int32 top = number % down * R, batch = number / down;
    // The results are counted as they are, and the threads are more.
    if ((uint64)batch * s.out[1] * s.out[2] * s.channels >= s.results) return;
    x += (uint64)batch * s.x_stride[0] + (uint64)channel * N * s.x_stride[1];
    const int32 first_row = top * S - s.begin[1], first_column = left * S - s.begin[2];
    typedef typename Rule<T, N>::Elements Elements;
    Elements seen[ROWS][COLUMNS];
    #pragma unroll
    for (int a = 0; a < ROWS; a++) {
        const int32 h = first_row + a;
        const bool in_row = h >= 0 && h < s.in[1];
        const T* line = x + (int64)h * s.x_stride[3] + (int64)first_column * s.x_stride[4];
        #pragma unroll
        for (int b = 0; b < COLUMNS; b++) {
            const int32 v = first_column + b;
            seen[a][b] = Rule<T, N>::nothing();
            if (in_row && v >= 0 && v < s.in[2]) seen[a][b] = *(const Elements*)(line + (int64)b * s.x_stride[4]);
        }
    }
    Rule<T, N> rules[R][R];
    slide<KH, KW, S>(rules, seen, s);
    #pragma unroll
    for (int i = 0; i < R; i++) {
        #pragma unroll
        for (int j = 0; j < R; j++) {
            const int32 h = top + i, v = left + j;
            if (h >= s.out[1] || v >= s.out[2]) continue;
            const Taps rows(s, 1, h), columns(s, 2, v);
            const int32 counted = rows.before(s, 1, s.end[1]) * columns.before(s, 2, s.end[2]);
            const int32 taken = COUNTS_PADDING ? counted : rows.count() * columns.count();
            const uint64 place = (((uint64)batch * s.out[1] + h) * s.out[2] + v) * s.channels + channel;
            *(Elements*)(y + place * N) = rules[i][j].finish(taken, s);
        }
    }
}

// Where the greatest element of each window is; the first of equal ones, NaN before all.
template <typename T, bool CHANNELS_LAST>
__device__ __forceinline__ void pool_indices(int64* y, const T* x, const Window& s) {
    typedef typename Wide<T>::type W;
    const uint32 number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= s.results) return;
    const Place<CHANNELS_LAST> place(s, number);
    const Taps taps[3] = {Taps(s, 0, place.at[0]), Taps(s, 1, place.at[1]), Taps(s, 2, place.at[2])};
    x += (uint64)place.batch * s.x_stride[0] + (uint64)place.channel * s.x_stride[1];
    int64 index = -1;
    W best = (W)0;
    for (int32 a = taps[0].from; a < taps[0].to; a++) {
        const int32 i0 = taps[0].start + a * s.dilation[0];
        for (int32 b = taps[1].from; b < taps[1].to; b++) {
            const int32 i1 = taps[1].start + b * s.dilation[1];
            for (int32 c = taps[2].from; c < taps[2].to; c++) {
                const int32 i2 = taps[2].start + c * s.dilation[2];
                const W value = widen(
                    x[(uint64)i0 * s.x_stride[2] + (uint64)i1 * s.x_stride[3] + (uint64)i2 * s.x_stride[4]]
                );
                if (index >= 0 && !(value > best || (value != value && best == best))) continue;
                best = value;
                index = (int64)i0 * s.counting[2] + (int64)i1 * s.counting[3] + (int64)i2 * s.counting[4];
            }
        }
    }
    if (index >= 0) index += (int64)place.batch * s.counting[0] + (int64)place.channel * s.counting[1];
    y[number] = index;
}
