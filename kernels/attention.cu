// Attention without the matrix of scores: keys in tiles, with a running greatest score and sum of weights.
//
// The heads of queries that share keys are rows of one matrix, head after head. The keys may be cut into parts, whose
// results `combine` joins.

struct Attend {
    // What scores are multiplied by, and where they are capped.
    double scale, cap;
    // What a query gives that sees no key.
    float blind;
    // Heads of queries for each head of keys, and extents.
    int32 group, keys, size, v_size;
    // Elements from one batch, head, row and column to the next.
    int32 q[4], k[4], v[4], mask[4], y[4];
    // Keys of a part of them; rows of all heads and batches.
    int32 span, rows;
    // Heads of keys; queries; tiles of the rows of a head of keys; parts of the keys.
    Divisor shared, queries, tiles, splits;
    // Whether 16 bytes of a row can be moved at once.
    int32 even;
    QuantizeParams params;
};

// A result as Y, which is T or a code of 8 bits.
template <typename T, typename Y>
struct Result {
    template <typename W>
    static __device__ __forceinline__ Y of(W x, const Attend& s) {
        return Quantizer<Y>::of((float)x, s.params);
    }
    static __device__ __forceinline__ Pack<Y, 8> all(const Pack<T, 8>& elements, const Attend& s) {
        Pack<Y, 8> results;
        #pragma unroll
        for (int32 c = 0; c < 8; c++) results.item[c] = of(widen(elements.item[c]), s);
        return results;
    }
};
template <typename T>
struct Result<T, T> {
    template <typename W>
    static __device__ __forceinline__ T of(W x, const Attend&) {
        return Narrow<T>::from(x);
    }
    static __device__ __forceinline__ const Pack<T, 8>& all(const Pack<T, 8>& elements, const Attend&) { return elements; }
};

#define NO_MASK 0
#define TRUTHS 1
#define NUMBERS 2

template <typename T, int MASK>
struct MaskOf {
    typedef T type;
};
template <typename T>
struct MaskOf<T, TRUTHS> {
    typedef bool type;
};

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// Where a row begins behind the first of its head of keys.
__device__ __forceinline__ int64 within(const Attend& s, const int32 (&step)[4], int32 r) {
    const int32 outer = s.queries.divide(r), place = r - outer * (int32)s.queries.size;
    return (int64)outer * step[1] + (int64)place * step[2];
}

// What a block works on.
struct Share {
    int32 batch, head, split, chunk;
    // Its rows: the first, and where those of the head end.
    int32 first, rows;
    // Its keys.
    int32 from, to;

    __device__ __forceinline__ Share(const Attend& s, int32 tile_rows, int32 chunks, bool causal) {
        uint32 rest = blockIdx.x;
        chunk = rest % chunks;
        rest /= chunks;
        // Where a query sees no key behind its own place, the last rows take longest: they come first.
        first = (s.tiles.size - 1 - s.tiles.take(rest)) * tile_rows;
        split = s.splits.take(rest);
        head = s.shared.take(rest);
        batch = rest;
        rows = s.group * s.queries.size;
        from = split * s.span;
        to = from + s.span < s.keys ? from + s.span : s.keys;
        to = end(s, 0, tile_rows, causal);
    }

    // Where those keys end that some rows of the block see.
    __device__ __forceinline__ int32 end(const Attend& s, int32 row, int32 count, bool causal) const {
        const int32 begin = first + row, last = (begin + count < rows ? begin + count : rows) - 1;
        if (begin > last) return from;
        const int32 ahead = s.queries.divide(begin) * s.queries.size;
        if (!causal || last - ahead >= (int32)s.queries.size) return to;
        return last - ahead + 1 < to ? last - ahead + 1 : to;
    }

    // Where the first of some heads begins.
    __device__ __forceinline__ int64 start(const int32 (&step)[4], int32 heads) const {
        return (int64)batch * step[0] + (int64)(head * heads) * step[1];
    }

    // Where a row begins: of the queries, the mask or the result.
    __device__ __forceinline__ int64 row(const Attend& s, const int32 (&step)[4], int32 r) const {
        return start(step, s.group) + within(s, step, r);
    }

    // The number of a row among those of all heads and batches.
    __device__ __forceinline__ int64 number(const Attend& s, int32 r) const {
        return ((int64)batch * s.shared.size + head) * rows + r;
    }
};

// Where the values of a part of the keys lie that a row gathered, and its greatest score and sum of weights.
template <typename W>
__device__ __forceinline__ W* gathered(W* partial, const Attend& s, int32 split, int64 row) {
    return partial + ((int64)split * s.rows + row) * s.v_size;
}
template <typename W>
__device__ __forceinline__ W* statistics(W* partial, const Attend& s, int32 split, int64 row) {
    return partial + (int64)s.splits.size * s.rows * s.v_size + ((int64)split * s.rows + row) * 2;
}

// Joins what the parts of the keys gave, a warp a row. Scores are exponents of e, or of two.
template <typename T, bool OF_TWO, typename Y>
__device__ void combine(Y* y, typename Wide<T>::type* partial, const Attend& s) {
    typedef typename Wide<T>::type W;
    const int64 number = (int64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (number >= s.rows) return;
    // As `Share` has it.
    uint32 rest = (uint32)number;
    const int32 place = s.queries.take(rest), head = rest % (s.group * s.shared.size), batch = rest / (s.group * s.shared.size);
    y += (int64)batch * s.y[0] + (int64)head * s.y[1] + (int64)place * s.y[2];
    W greatest = (W)minus_infinity();
    for (int32 i = 0; i < (int32)s.splits.size; i++) greatest = fmax(greatest, statistics(partial, s, i, number)[0]);
    const W base = greatest == (W)minus_infinity() ? (W)0 : greatest;
    W sum = 0;
    for (int32 column = threadIdx.x % 32; column < s.v_size; column += 32) {
        W value = 0;
        sum = 0;
        for (int32 i = 0; i < (int32)s.splits.size; i++) {
            const W* own = statistics(partial, s, i, number);
            const W weight = OF_TWO ? exp2(own[0] - base) : exp(own[0] - base);
            sum += own[1] * weight;
            value += gathered(partial, s, i, number)[column] * weight;
        }
        y[(int64)column * s.y[3]] = Result<T, Y>::of(sum == (W)0 ? (W)s.blind : value / sum, s);
    }
}

// Any size and any dtype, on the ordinary cores: 128 threads for 32 rows, of which each has four, and COLUMNS columns of
// the values. Tiles of 32 keys, 32 numbers of a key at a time.
template <typename T, int COLUMNS, bool CAUSAL, int MASK, bool CAPPED, typename Y>
__device__ void attend_plainly(Y* y, const T* q, const T* k, const T* v, const typename MaskOf<T, MASK>::type* mask,
                               typename Wide<T>::type* partial, const Attend& s) {
    typedef typename Wide<T>::type W;
    // A row of shared memory is a few numbers longer, so that neighbouring rows do not want the same banks.
    constexpr int32 TILE = 32, ROW = TILE + 4, QUADS = COLUMNS / 64;
    alignas(32) __shared__ W q_part[TILE][ROW];
    alignas(32) __shared__ W k_part[TILE][ROW];
    alignas(32) __shared__ W weights[TILE][ROW];
    alignas(32) __shared__ W v_part[TILE][COLUMNS];
    __shared__ int64 q_rows[TILE];
    typedef Pack<W, 4> Quad;
    const Share share(s, TILE, (s.v_size + COLUMNS - 1) / COLUMNS, CAUSAL);
    const int32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int32 across = threadIdx.x % 16, down = threadIdx.x / 16 * 4;
    const int32 column0 = share.chunk * COLUMNS;
    k += share.start(s.k, 1);
    v += share.start(s.v, 1);
    // The rows behind the last one do what it does, and give nothing.
    const int32 last = share.rows - 1;
    if (threadIdx.x < TILE) {
        const int32 r = share.first + (int32)threadIdx.x;
        q_rows[threadIdx.x] = share.row(s, s.q, r < last ? r : last);
    }
    int32 place[4];
    int64 mask_row[4];
    W greatest[4], sum[4];
    Quad values[4][QUADS];
    #pragma unroll
    for (int32 i = 0; i < 4; i++) {
        const int32 r = share.first + down + i < last ? share.first + down + i : last;
        place[i] = r - (int32)(s.queries.divide(r) * s.queries.size);
        mask_row[i] = MASK == NO_MASK ? 0 : share.row(s, s.mask, r);
        greatest[i] = (W)minus_infinity();
        sum[i] = 0;
        #pragma unroll
        for (int32 j = 0; j < QUADS; j++) values[i][j] = {{0, 0, 0, 0}};
    }
    __syncthreads();
    for (int32 key0 = share.from; key0 < share.to; key0 += TILE) {
        W score[4][2] = {};
        int32 d0 = 0;
        // Once at least, for its barriers: the weights and values of the keys before have been read then.
        do {
            const int64 d = d0 + lane;
            for (int32 i = warp; i < TILE; i += 4) {
                const bool there = d < s.size && key0 + i < share.to;
                q_part[i][lane] = d < s.size ? (W)widen(q[q_rows[i] + d * s.q[3]]) : (W)0;
                k_part[i][lane] = there ? (W)widen(k[(int64)(key0 + i) * s.k[2] + d * s.k[3]]) : (W)0;
            }
            __syncthreads();
            #pragma unroll
            for (int32 c = 0; c < TILE; c += 4) {
                const Quad b0 = *(const Quad*)&k_part[across][c], b1 = *(const Quad*)&k_part[across + 16][c];
                #pragma unroll
                for (int32 i = 0; i < 4; i++) {
                    const Quad a = *(const Quad*)&q_part[down + i][c];
                    #pragma unroll
                    for (int32 e = 0; e < 4; e++) {
                        score[i][0] += a.item[e] * b0.item[e];
                        score[i][1] += a.item[e] * b1.item[e];
                    }
                }
            }
            __syncthreads();
            d0 += TILE;
        } while (d0 < s.size);
        #pragma unroll
        for (int32 i = 0; i < 4; i++) {
            #pragma unroll
            for (int32 j = 0; j < 2; j++) {
                const int32 key = key0 + across + 16 * j;
                W x = score[i][j] * (W)s.scale;
                if (CAPPED) x = (W)s.cap * tanh(x / (W)s.cap);
                if (key >= share.to || (CAUSAL && key > place[i])) {
                    x = (W)minus_infinity();
                } else if (MASK != NO_MASK) {
                    const auto found = mask[mask_row[i] + (int64)key * s.mask[3]];
                    if constexpr (MASK == TRUTHS) x = found ? x : (W)minus_infinity();
                    else x += (W)widen(found);
                }
                score[i][j] = x;
            }
            W most = fmax(score[i][0], score[i][1]);
            #pragma unroll
            for (int32 other = 8; other > 0; other >>= 1) most = fmax(most, __shfl_xor_sync(0xffffffffu, most, other));
            most = fmax(most, greatest[i]);
            // A row that saw nothing so far has weights of zero, not NaN.
            const W base = most == (W)minus_infinity() ? (W)0 : most;
            const W shrink = exp(greatest[i] - base);
            greatest[i] = most;
            const W w0 = exp(score[i][0] - base), w1 = exp(score[i][1] - base);
            sum[i] = sum[i] * shrink + w0 + w1;
            weights[down + i][across] = w0;
            weights[down + i][across + 16] = w1;
            #pragma unroll
            for (int32 j = 0; j < QUADS; j++) {
                #pragma unroll
                for (int32 e = 0; e < 4; e++) values[i][j].item[e] *= shrink;
            }
        }
        for (int32 i = threadIdx.x; i < TILE * COLUMNS; i += blockDim.x) {
            const int32 key = key0 + i / COLUMNS, column = column0 + i % COLUMNS;
            const bool there = key < share.to && column < s.v_size;
            v_part[i / COLUMNS][i % COLUMNS] = there ? (W)widen(v[(int64)key * s.v[2] + (int64)column * s.v[3]]) : (W)0;
        }
        __syncthreads();
        #pragma unroll 2
        for (int32 c = 0; c < TILE; c += 4) {
            Quad w[4];
            #pragma unroll
            for (int32 i = 0; i < 4; i++) w[i] = *(const Quad*)&weights[down + i][c];
            #pragma unroll
            for (int32 key = 0; key < 4; key++) {
                #pragma unroll
                for (int32 j = 0; j < QUADS; j++) {
                    const Quad b = *(const Quad*)&v_part[c + key][across * 4 + j * 64];
                    #pragma unroll
                    for (int32 i = 0; i < 4; i++) {
                        #pragma unroll
                        for (int32 e = 0; e < 4; e++) values[i][j].item[e] += w[i].item[key] * b.item[e];
                    }
                }
            }
        }
    }
    #pragma unroll
    for (int32 i = 0; i < 4; i++) {
        #pragma unroll
        for (int32 other = 8; other > 0; other >>= 1) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], other);
        const int32 r = share.first + down + i;
        if (r > last) continue;
        const int64 number = share.number(s, r);
        Y* to = y + share.row(s, s.y, r);
        if (s.splits.size > 1 && across == 0 && share.chunk == 0) {
            W* own = statistics(partial, s, share.split, number);
            own[0] = greatest[i];
            own[1] = sum[i];
        }
        #pragma unroll
        for (int32 j = 0; j < QUADS; j++) {
            #pragma unroll
            for (int32 e = 0; e < 4; e++) {
                const int32 column = column0 + across * 4 + j * 64 + e;
                const W value = values[i][j].item[e];
                if (column >= s.v_size) continue;
                if (s.splits.size > 1) gathered(partial, s, share.split, number)[column] = value;
                else to[(int64)column * s.y[3]] = Result<T, Y>::of(sum[i] == (W)0 ? (W)s.blind : value / sum[i], s);
            }
        }
    }
}
