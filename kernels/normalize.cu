// Rows divided by a number that follows from their elements, then scaled and shifted, each in one pass over memory: a team of
// threads holds its row in registers. What is too long for that is read again.

// What a row is divided by: its standard deviation, behind which its mean is taken off; the root of the mean of its squares; its
// Euclidean norm, or epsilon where that is greater.
enum RowNorm { DEVIATION, ROOT_MEAN_SQUARE, EUCLIDEAN };

struct Rows {
    double epsilon;
    int32 rows, length, team;
    // Where scale and shift have a number per channel: the length of a channel in a row, the channels of a row, and after
    // how many rows they begin again.
    int32 places, channels, groups;
    QuantizeParams params;
};

// What is done with the result.
template <int ACTIVATION, typename W>
__device__ __forceinline__ W activated(W x) {
    if (ACTIVATION == 1) return f_relu(x);
    if (ACTIVATION == 2) return f_silu(x);
    return x;
}

// X: elements; S: scale and shift. Each is there or not; a row is a + b where ADDED, which `kept` gets where KEPT.
// CHANNELS: scale and shift have a number per channel. `y` may be missing where `codes` is there.
template <
    typename X, typename S, int N, RowNorm DIVISOR, bool ADDED, bool KEPT, bool SCALED, bool SHIFTED, bool CHANNELS,
    int ACTIVATION, typename Q>
struct Normalize {
    typedef typename Wide<X>::type W;
    static constexpr bool CENTRED = DIVISOR == DEVIATION;
    X *y, *kept;
    const X *a, *b;
    const S *scale, *shift;
    Q* codes;

    // What a row is multiplied with, from the sum of its squares.
    static __device__ __forceinline__ W factor(W squares, const Rows& s) {
        if constexpr (DIVISOR == EUCLIDEAN) return (W)1 / f_max(sqrt(squares), (W)s.epsilon);
        return (W)1 / sqrt(squares / (W)s.length + (W)s.epsilon);
    }

    __device__ __forceinline__ void read(W (&x)[N], uint64 at) const {
        load<X, N>(x, a + at);
        if constexpr (ADDED) {
            W other[N];
            load<X, N>(other, b + at);
            #pragma unroll
            for (int k = 0; k < N; k++) x[k] += other[k];
        }
    }

    // Scale and shift of a pack, where each element has its own.
    struct Sides {
        Pack<S, N> scale, shift;
    };

    __device__ __forceinline__ Sides sides(uint32 at) const {
        Sides sides;
        if constexpr (SCALED && !CHANNELS) sides.scale = *(const Pack<S, N>*)(scale + at);
        if constexpr (SHIFTED && !CHANNELS) sides.shift = *(const Pack<S, N>*)(shift + at);
        return sides;
    }

    __device__ __forceinline__ void write(
        W (&x)[N], const Sides& sides, uint64 start, uint32 at, uint32 row, W mean, W factor, const Rows& s
    ) const {
        const uint32 channel = CHANNELS ? row % s.groups * s.channels + at / s.places : 0;
        #pragma unroll
        for (int k = 0; k < N; k++) {
            x[k] = (x[k] - mean) * factor;
            if constexpr (SCALED) x[k] *= (W)widen(CHANNELS ? scale[channel] : sides.scale.item[k]);
            if constexpr (SHIFTED) x[k] += (W)widen(CHANNELS ? shift[channel] : sides.shift.item[k]);
            x[k] = activated<ACTIVATION>(x[k]);
        }
        if (!Quantizer<Q>::THERE || y) store<X, N>(y + start + at, x);
        if constexpr (Quantizer<Q>::THERE) {
            Pack<Q, N> pack;
            #pragma unroll
            for (int k = 0; k < N; k++) pack.item[k] = Quantizer<Q>::of(x[k], s.params);
            *(Pack<Q, N>*)(codes + start + at) = pack;
        }
    }

    // Each thread holds PACKS packs.
    template <int PACKS, bool BLOCK>
    __device__ __forceinline__ void held(const Rows& s) const {
        const Member<BLOCK> me(s.team);
        const uint64 start = (uint64)me.row * s.length;
        const uint32 length = me.row < s.rows ? s.length : 0;
        // Scale and shift are under way with the row, where they don't take the registers of other rows.
        constexpr bool EARLY = PACKS * N * sizeof(S) <= 32;
        W x[PACKS][N];
        Sides early[EARLY ? PACKS : 1];
        W sum = (W)0;
        #pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const uint32 at = (p * me.team + me.number) * N;
            if (at >= length) continue;
            read(x[p], start + at);
            if constexpr (EARLY) early[p] = sides(at);
            if constexpr (KEPT) store<X, N>(kept + start + at, x[p]);
            #pragma unroll
            for (int k = 0; k < N; k++) sum += x[p][k];
        }
        const W mean = CENTRED ? joined<Sum<W>, BLOCK>(sum, me.team) / (W)s.length : (W)0;
        W squares = (W)0;
        #pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if ((p * me.team + me.number) * N >= length) continue;
            #pragma unroll
            for (int k = 0; k < N; k++) squares += f_square(x[p][k] - mean);
        }
        const W inverse = factor(joined<Sum<W>, BLOCK>(squares, me.team), s);
        #pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const uint32 at = (p * me.team + me.number) * N;
            if (at >= length) continue;
            if constexpr (EARLY) {
                write(x[p], early[p], start, at, me.row, mean, inverse, s);
            } else {
                write(x[p], sides(at), start, at, me.row, mean, inverse, s);
            }
        }
    }

    // A block reads its row three times.
    __device__ __forceinline__ void streamed(const Rows& s) const {
        const uint64 start = (uint64)blockIdx.x * s.length;
        const uint32 first = threadIdx.x * N, step = blockDim.x * N, length = s.length;
        W x[N], mean = (W)0, sum = (W)0;
        if (CENTRED || KEPT) {
            for (uint32 at = first; at < length; at += step) {
                read(x, start + at);
                if constexpr (KEPT) store<X, N>(kept + start + at, x);
                #pragma unroll
                for (int k = 0; k < N; k++) sum += x[k];
            }
            if (CENTRED) mean = joined<Sum<W>, true>(sum, 0) / (W)s.length;
        }
        W squares = (W)0;
        for (uint32 at = first; at < length; at += step) {
            read(x, start + at);
            #pragma unroll
            for (int k = 0; k < N; k++) squares += f_square(x[k] - mean);
        }
        const W inverse = factor(joined<Sum<W>, true>(squares, 0), s);
        for (uint32 at = first; at < length; at += step) {
            read(x, start + at);
            write(x, sides(at), start, at, blockIdx.x, mean, inverse, s);
        }
    }
};
