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

// Where the GPU compares two numbers of 16 bits at once.
template <typename T, int N>
__device__ __forceinline__ void take_greater(Pack<T, N>& most, const Pack<T, N>& x) {
    #pragma unroll
    for (int k = 0; k < N; k++) most.item[k] = greater(most.item[k], x.item[k]);
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define PAIRS(T, instruction)                                                                               \
    template <int N>                                                                                        \
    __device__ __forceinline__ void take_greater(Pack<T, N>& most, const Pack<T, N>& x) {                   \
        if constexpr (N == 1) {                                                                             \
            most.item[0] = greater(most.item[0], x.item[0]);                                                \
        } else {                                                                                            \
            _Pragma("unroll") for (int k = 0; k < N; k += 2) {                                              \
                uint32 a = most.item[k].bits | (uint32)most.item[k + 1].bits << 16;                         \
                const uint32 b = x.item[k].bits | (uint32)x.item[k + 1].bits << 16;                         \
                asm(instruction " %0, %0, %1;" : "+r"(a) : "r"(b));                                         \
                most.item[k].bits = (uint16)a;                                                              \
                most.item[k + 1].bits = (uint16)(a >> 16);                                                  \
            }                                                                                               \
        }                                                                                                   \
    }
PAIRS(float16, "max.NaN.f16x2")
PAIRS(bfloat16, "max.NaN.bf16x2")
#endif

// Integers of 8 bits as the upper halves of those of 16, two of which are compared at once: what lies below decides between equals.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define FOURS(T, instruction)                                                                               \
    template <int N>                                                                                        \
    __device__ __forceinline__ void take_greater(Pack<T, N>& most, const Pack<T, N>& x) {                   \
        if constexpr (N % 4 != 0) {                                                                         \
            _Pragma("unroll") for (int k = 0; k < N; k++) most.item[k] = greater(most.item[k], x.item[k]);  \
        } else {                                                                                            \
            _Pragma("unroll") for (int k = 0; k < N; k += 4) {                                              \
                uint32& a = *(uint32*)&most.item[k];                                                        \
                const uint32 b = *(const uint32*)&x.item[k];                                                \
                uint32 even, odd;                                                                           \
                asm(instruction " %0, %1, %2;" : "=r"(odd) : "r"(a), "r"(b));                               \
                asm(instruction " %0, %1, %2;" : "=r"(even) : "r"(a << 8), "r"(b << 8));                    \
                a = __byte_perm(even, odd, 0x7351);                                                         \
            }                                                                                               \
        }                                                                                                   \
    }
FOURS(int8, "max.s16x2")
FOURS(uint8, "max.u16x2")
#endif

// What becomes of the elements of a window.
template <typename T, int N>
struct MaxPool {
    Pack<T, N> most;
    __device__ __forceinline__ MaxPool() { most = nothing(); }
    // What changes no result.
    static __device__ __forceinline__ Pack<T, N> nothing() {
        Pack<T, N> pack;
        #pragma unroll
        for (int k = 0; k < N; k++) pack.item[k] = Lowest<T>::value();
        return pack;
    }
    __device__ __forceinline__ void take(const Pack<T, N>& x, const Window&) { take_greater(most, x); }
    __device__ __forceinline__ Pack<T, N> finish(int32, const Window&) { return most; }
};

template <typename T, int N>
struct AveragePool {
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
                    if (c >= taps[2].from && c < taps[2].to) rule.take(*(const Pack<T, N>*)(first + c * step), s);
                }
            } else {
                #pragma unroll 4
                for (int32 c = taps[2].from; c < taps[2].to; c++) rule.take(*(const Pack<T, N>*)(first + c * step), s);
            }
        }
    }
    int32 taken = 1;
    #pragma unroll
    for (int a = 0; a < 3; a++) taken *= COUNTS_PADDING ? taps[a].before(s, a, s.end[a]) : taps[a].count();
    *(Pack<T, N>*)(y + (uint64)number * N) = rule.finish(taken, s);
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
    Rule<T, N> rules[R][R];
    #pragma unroll
    for (int a = 0; a < ROWS; a++) {
        const int32 h = first_row + a;
        const bool in_row = h >= 0 && h < s.in[1];
        const T* line = x + (int64)h * s.x_stride[3] + (int64)first_column * s.x_stride[4];
        Pack<T, N> seen[COLUMNS];
        #pragma unroll
        for (int b = 0; b < COLUMNS; b++) {
            const int32 v = first_column + b;
            seen[b] = Rule<T, N>::nothing();
            if (in_row && v >= 0 && v < s.in[2]) seen[b] = *(const Pack<T, N>*)(line + (int64)b * s.x_stride[4]);
        }
        #pragma unroll
        for (int i = 0; i < R; i++) {
            if (a < i * S || a >= i * S + KH) continue;
            #pragma unroll
            for (int j = 0; j < R; j++) {
                #pragma unroll
                for (int b = 0; b < KW; b++) rules[i][j].take(seen[j * S + b], s);
            }
        }
    }
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
            *(Pack<T, N>*)(y + place * N) = rules[i][j].finish(taken, s);
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
