// Attention on tensor cores: each warp has 16 rows and a part of each tile of keys, which lies in shared memory while the
// next one is on its way. Scores and results are summed in float; weights meet the values as elements.
//
// The keys of a warp lie there in another order than they came in, so that a lane has scores of neighbours: what hides
// them is loaded at once, and before the scores are there.

// Where in a tile the keys are whose scores are those of one lane: from key lane % 4 * (KEYS / 4) on.
template <int KEYS>
__device__ __forceinline__ int32 spot(int32 key) {
    constexpr int32 COUNT = KEYS / 4;
    return key / KEYS * KEYS + key % COUNT / 2 * 8 + key % KEYS / COUNT * 2 + key % 2;
}

// COUNT rows into shared memory, of WIDTH columns there; zeros from row `end` and column `size` on. `place` says where a
// row begins, in STEADY steps or not, `spot` the row of shared memory.
template <typename T, int THREADS, int COUNT, int WIDTH, int ROW, bool STEADY, typename Place, typename Spot>
__device__ __forceinline__ void bring(T* to, const T* from, int32 first, int32 end, int32 size, int32 step, bool even,
                                      Place place, Spot spot) {
    if (even) {
        // A power of two, so that what is the same for all threads is known when this is compiled.
        constexpr int32 ACROSS = WIDTH <= 16 ? 2 : WIDTH <= 32 ? 4 : WIDTH <= 64 ? 8 : WIDTH <= 128 ? 16 : 32;
        constexpr int32 DOWN = THREADS / ACROSS;
        const int32 row = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS * 8;
        if (ACROSS * 8 > WIDTH && column >= WIDTH) return;
        T* const own = to + spot(row) * ROW + column;
        from += column;
        const T* at = from + place(first + row);
        const int64 hop = place(DOWN);
        const int32 rows = column < size ? end - first - row : 0;
        #pragma unroll
        for (int32 j = 0; j < COUNT; j += DOWN) {
            if (!STEADY) at = from + place(first + row + j);
            // Nothing is read where nothing is there. Spots permute bits: the sum's is the sum of both.
            if (j + DOWN <= COUNT || row + j < COUNT) fetch(own + spot(j) * ROW, at, j < rows);
            if (STEADY) at += hop;
        }
        return;
    }
    #pragma unroll 1
    for (int32 i = threadIdx.x; i < COUNT * WIDTH; i += THREADS) {
        const int32 row = i / WIDTH, column = i % WIDTH;
        T element = {0};
        if (first + row < end && column < size) element = from[place(first + row) + (int64)column * step];
        to[spot(row) * ROW + column] = element;
    }
}

// What a mask says of COUNT neighbouring keys.
template <typename M, int COUNT>
struct Neighbours {
    static constexpr int32 WORDS = COUNT * sizeof(M) / 4, PACK = WORDS < 4 ? WORDS : 4, EACH = 4 / sizeof(M);
    uint32 word[WORDS];

    // Of `left` keys there; of those behind, zeros.
    __device__ __forceinline__ void load(const M* from, int32 step, int32 left) {
        if (left >= COUNT && step == 1 && (uint64)from % (PACK * 4) == 0) {
            #pragma unroll
            for (int32 i = 0; i < WORDS / PACK; i++) {
                const Pack<uint32, PACK> pack = ((const Pack<uint32, PACK>*)from)[i];
                #pragma unroll
                for (int32 j = 0; j < PACK; j++) word[i * PACK + j] = pack.item[j];
            }
            return;
        }
        uint32 item[COUNT];
        #pragma unroll
        for (int32 i = 0; i < COUNT; i++) {
            const M* at = from + (int64)i * step;
            item[i] = 0;
            if (i < left) item[i] = sizeof(M) == 1 ? (uint32)*(const uint8*)at : (uint32)*(const uint16*)at;
        }
        #pragma unroll
        for (int32 i = 0; i < WORDS; i++) {
            word[i] = 0;
            #pragma unroll
            for (int32 j = 0; j < EACH; j++) word[i] |= item[i * EACH + j] << (j * 8 * sizeof(M));
        }
    }

    // Truths as bits.
    __device__ __forceinline__ uint32 bits() const {
        uint32 all = 0;
        #pragma unroll
        // The product gathers the lowest bits of four bytes in the highest byte.
        for (int32 i = 0; i < WORDS; i++) all |= ((word[i] & 0x01010101u) * 0x01020408u >> 24 & 15u) << (i * 4);
        return all;
    }

    // One of the numbers.
    __device__ __forceinline__ float number(int32 i) const {
        M one;
        one.bits = (uint16)(word[i / EACH] >> (i % EACH * 16));
        return widen(one);
    }
};

// What a lane knows of its two rows, and what the mask says of its next keys.
template <typename T, int KEYS, int MASK>
struct Sight {
    typedef typename MaskOf<T, MASK>::type M;
    static constexpr int32 COUNT = KEYS / 4;
    int32 place[2];
    const M* mask[2];
    Neighbours<M, COUNT> next[2];

    // For the lane's rows of the 16 from `first` on; those behind the last one do what it does, and give nothing.
    template <bool CAUSAL>
    __device__ __forceinline__ void begin(const M* all, int32 first, const Share& share, const Attend& s) {
        #pragma unroll
        for (int32 i = 0; i < 2; i++) {
            const int32 r = share.first + first + (int32)threadIdx.x % 32 / 4 + i * 8;
            const int32 there = r < share.rows ? r : share.rows - 1;
            if (CAUSAL) place[i] = there - (int32)s.queries.divide(there) * (int32)s.queries.size;
            if (MASK != NO_MASK) mask[i] = all + share.row(s, s.mask, there);
        }
    }

    // From where on keys are hidden from one of the rows.
    __device__ __forceinline__ int32 least() const { return 1 + (place[0] < place[1] ? place[0] : place[1]); }

    __device__ __forceinline__ void look(int32 start, const Attend& s) {
        if (MASK == NO_MASK) return;
        const int32 key = start + threadIdx.x % 4 * COUNT;
        next[0].load(mask[0] + (int64)key * s.mask[3], s.mask[3], s.keys - key);
        if (mask[0] == mask[1]) next[1] = next[0];
        else next[1].load(mask[1] + (int64)key * s.mask[3], s.mask[3], s.keys - key);
    }
};

// How scores become exponents.
struct Scores {
    // What they are multiplied by before they are capped or a number is added, and what differences of them are after
    // it: exponents of two.
    float factor, cap, unit;
    // What turns the signs of queries.
    uint32 turn;
};

template <int MASK, bool CAPPED>
__device__ __forceinline__ Scores scores_of(const Attend& s) {
    const float scale = fabsf((float)s.scale), cap = (float)s.cap;
    // With a scale above zero, the greatest product is the greatest score.
    const uint32 turn = s.scale < 0.0 ? 0x80008000u : 0u;
    return {CAPPED ? scale / cap : scale, cap, CAPPED || MASK == NUMBERS ? LOG2_E : scale * LOG2_E, turn};
}

// Scores of a warp's rows and keys, capped and masked; keys count up to `end`.
template <typename T, int KEYS, bool CAUSAL, int MASK, bool CAPPED>
__device__ __forceinline__ void hide(float (&score)[KEYS / 8][4], const Sight<T, KEYS, MASK>& sight, int32 start, int32 end,
                                     bool edge, const Scores& how) {
    constexpr int32 COUNT = KEYS / 4;
    constexpr uint32 ALL = (1u << COUNT) - 1;
    const int32 key = start + threadIdx.x % 4 * COUNT;
    uint32 seen[2] = {ALL, ALL};
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        if constexpr (MASK == TRUTHS) seen[i] = sight.next[i].bits();
        if (edge) {
            const int32 last = CAUSAL && sight.place[i] < end ? sight.place[i] + 1 : end;
            const int32 left = last - key < 0 ? 0 : last - key;
            if (left < COUNT) seen[i] &= (1u << left) - 1;
        }
    }
    if (CAPPED || MASK == NUMBERS) {
        #pragma unroll
        for (int32 j = 0; j < COUNT; j++) {
            #pragma unroll
            for (int32 i = 0; i < 2; i++) {
                float& x = score[j / 2][i * 2 + j % 2];
                if (CAPPED) x = f_fast_tanh(x * how.factor) * how.cap;
                else x *= how.factor;
                if constexpr (MASK == NUMBERS) x += sight.next[i].number(j);
            }
        }
    }
    if ((seen[0] & seen[1]) == ALL) return;
    #pragma unroll
    for (int32 j = 0; j < COUNT; j++) {
        #pragma unroll
        for (int32 i = 0; i < 2; i++) {
            if (!(seen[i] & 1u << j)) score[j / 2][i * 2 + j % 2] = minus_infinity();
        }
    }
}

// Scores to weights, and by what that shrinks which was gathered before, where a greater score came. The sums are those of the
// lane.
template <int KEYS, int MASK>
__device__ __forceinline__ void weigh(float (&score)[KEYS / 8][4], float (&greatest)[2], float (&sum)[2], float (&shrink)[2],
                                      float unit) {
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        float most = greatest[i];
        #pragma unroll
        for (int32 n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(score[n][i * 2], score[n][i * 2 + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        // A row that saw nothing so far has weights of zero, not NaN.
        const float base = most == minus_infinity() ? 0.0f : most, below = -base * unit;
        // Numbers that are added may be as low as a float can be, and would become minus infinity as exponents of two.
        const auto power = [&](float x) { return power_of_two(MASK == NUMBERS ? (x - base) * unit : fmaf(x, unit, below)); };
        shrink[i] = greatest[i] == most ? 1.0f : power(greatest[i]);
        greatest[i] = most;
        float total = 0.0f;
        #pragma unroll
        for (int32 n = 0; n < KEYS / 8; n++) {
            #pragma unroll
            for (int32 c = 0; c < 2; c++) {
                const float weight = power(score[n][i * 2 + c]);
                score[n][i * 2 + c] = weight;
                total += weight;
            }
        }
        sum[i] = sum[i] * shrink[i] + total;
    }
}

// What was gathered before.
template <int DV>
__device__ __forceinline__ void shrink_values(float (&value)[DV / 8][4], const float (&shrink)[2]) {
    if (shrink[0] == 1.0f && shrink[1] == 1.0f) return;
    #pragma unroll
    for (int32 n = 0; n < DV / 8; n++) {
        #pragma unroll
        for (int32 i = 0; i < 4; i++) value[n][i] *= shrink[i / 2];
    }
}

// The sums of whole rows, and greatest scores as exponents of two, or of e where numbers are added.
template <int MASK>
__device__ __forceinline__ void sum_lanes(float (&greatest)[2], float (&sum)[2], float unit) {
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
        if (MASK != NUMBERS) greatest[i] *= unit;
    }
}

// Sizes of keys up to D and of values up to DV, both multiples of 16. ROW_WARPS times KEY_WARPS warps: those of the same
// rows have KEYS keys each of a tile.
template <typename T, int D, int DV, int KEYS, int ROW_WARPS, int KEY_WARPS, bool CAUSAL, int MASK, bool CAPPED,
          typename Y>
__device__ void attend(Y* y, const T* q, const T* k, const T* v, const typename MaskOf<T, MASK>::type* mask,
                       float* partial, const Attend& s) {
    // Rows are 16 bytes longer than a multiple of 32: no two of eight rows that are read at once want the same banks.
    constexpr int32 Q_ROW = (D > DV ? D : DV) + 8, K_ROW = D + 8, V_ROW = DV + 8;
    constexpr int32 THREADS = ROW_WARPS * KEY_WARPS * 32, ROWS = ROW_WARPS * 16, TILE = KEYS * KEY_WARPS;
    // Queries stay in registers where there is room beside the results.
    constexpr bool KEPT = D <= 128 && (KEYS >= 64 || KEY_WARPS > 1);
    extern __shared__ Pack<uint32, 4> memory[];
    T* const q_tile = (T*)memory;
    T* const tiles_at = q_tile + ROWS * Q_ROW;
    const int32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Share share(s, ROWS, 1, CAUSAL);
    k += share.start(s.k, 1);
    v += share.start(s.v, 1);
    const auto bring_keys = [&](int32 tile) {
        const int32 start = share.from + tile * TILE;
        T* const k_tile = tiles_at + tile % 2 * TILE * (K_ROW + V_ROW);
        const auto to = [](int32 row) { return spot<KEYS>(row); };
        bring<T, THREADS, TILE, D, K_ROW, true>(k_tile, k, start, share.to, s.size, s.k[3], s.even,
                                 [&](int32 key) { return (int64)key * s.k[2]; }, to);
        bring<T, THREADS, TILE, DV, V_ROW, true>(k_tile + TILE * K_ROW, v, start, share.to, s.v_size, s.v[3], s.even,
                                  [&](int32 key) { return (int64)key * s.v[2]; }, to);
    };
    const int32 tiles = share.to > share.from ? (share.to - share.from + TILE - 1) / TILE : 0;
    q += share.start(s.q, s.group);
    bring<T, THREADS, ROWS, D, Q_ROW, false>(q_tile, q, share.first, share.rows, s.size, s.q[3], s.even,
                             [&](int32 r) { return within(s, s.q, r); }, [](int32 row) { return row; });
    #pragma unroll 1
    for (int32 tile = 0; tile < 2; tile++) {
        if (tile < tiles) bring_keys(tile);
        fetched();
    }

    // The warp's rows within the block, and its keys within a tile; where the keys end that its rows see.
    const int32 first = warp % ROW_WARPS * 16, first_key = share.from + warp / ROW_WARPS * KEYS;
    const int32 end = share.end(s, first, 16, CAUSAL);
    const Scores how = scores_of<MASK, CAPPED>(s);
    Sight<T, KEYS, MASK> sight;
    sight.template begin<CAUSAL>(mask, first, share, s);
    const int32 least = CAUSAL ? sight.least() : 0;
    if (first_key < end) sight.look(first_key, s);
    float greatest[2] = {minus_infinity(), minus_infinity()}, sum[2] = {0.0f, 0.0f};
    float value[DV / 8][4] = {};
    uint32 kept[KEPT ? D / 16 : 1][4];
    T* const own = q_tile + first * Q_ROW;
    const T* const q_row = own + lane % 16 * Q_ROW + lane / 16 * 8;
    const auto load_queries = [&](uint32 (&a)[4], int32 d) {
        load_matrices(a, q_row + d * 16);
        #pragma unroll
        for (int32 i = 0; i < 4; i++) a[i] ^= how.turn;
    };
    // Where the lane's row of the matrices of keys and values begins.
    const int32 k_place = (warp / ROW_WARPS * KEYS + lane % 8 + lane / 16 * 8) * K_ROW + lane / 8 % 2 * 8;
    const int32 v_place = TILE * K_ROW + (warp / ROW_WARPS * KEYS + lane % 16) * V_ROW + lane / 16 * 8;
    #pragma unroll 1
    for (int32 tile = 0; tile < tiles; tile++) {
        arrived<1>();
        __syncthreads();
        if (KEPT && tile == 0) {
            #pragma unroll
            for (int32 d = 0; d < D / 16; d++) load_queries(kept[KEPT ? d : 0], d);
        }
        const int32 start = first_key + tile * TILE;
        if (start < end) {
            const T* const stage = tiles_at + tile % 2 * TILE * (K_ROW + V_ROW);
            float score[KEYS / 8][4] = {};
            #pragma unroll
            for (int32 d = 0; d < D / 16; d++) {
                uint32 a[4];
                if (!KEPT) load_queries(a, d);
                #pragma unroll
                for (int32 n = 0; n < KEYS / 16; n++) {
                    uint32 b[4];
                    load_matrices(b, stage + k_place + n * 16 * K_ROW + d * 16);
                    Product16<T>::add(score[n * 2], KEPT ? kept[KEPT ? d : 0] : a, b[0], b[1]);
                    Product16<T>::add(score[n * 2 + 1], KEPT ? kept[KEPT ? d : 0] : a, b[2], b[3]);
                }
            }
            const bool edge = start + KEYS > end || (CAUSAL && start + KEYS > least);
            hide<T, KEYS, CAUSAL, MASK, CAPPED>(score, sight, start, end, edge, how);
            if (start + TILE < end) sight.look(start + TILE, s);
            float shrink[2];
            weigh<KEYS, MASK>(score, greatest, sum, shrink, how.unit);
            if (tile > 0) shrink_values<DV>(value, shrink);
            #pragma unroll
            for (int32 n = 0; n < KEYS / 16; n++) {
                const float(&low)[4] = score[n * 2], (&high)[4] = score[n * 2 + 1];
                const uint32 a[4] = {Two<T>::from(low[0], low[1]), Two<T>::from(low[2], low[3]),
                                     Two<T>::from(high[0], high[1]), Two<T>::from(high[2], high[3])};
                #pragma unroll
                for (int32 d = 0; d < DV / 16; d++) {
                    uint32 b[4];
                    load_turned(b, stage + v_place + n * 16 * V_ROW + d * 16);
                    Product16<T>::add(value[d * 2], a, b[0], b[1]);
                    Product16<T>::add(value[d * 2 + 1], a, b[2], b[3]);
                }
            }
        }
        if (tile + 2 < tiles) {
            // Whoever still reads the tile must be done before the one after the next takes its place.
            __syncthreads();
            bring_keys(tile + 2);
        }
        fetched();
    }
    if (tiles == 0) {
        arrived<0>();
        __syncthreads();
    }
    sum_lanes<MASK>(greatest, sum, how.unit);
    if constexpr (KEY_WARPS > 1) join<T, DV, ROW_WARPS, KEY_WARPS, MASK>(y, partial, (float*)memory, value, greatest, sum, share, s);
    else if (s.splits.size > 1) keep<DV>(partial, value, greatest, sum, first, share, s);
    else give<T, DV, Q_ROW>(y, own, value, sum, first, share, s);
}
