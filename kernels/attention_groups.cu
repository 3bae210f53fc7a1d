// Attention on Hopper: warpgroups multiply queries and keys, and weights, which stay in registers, and
// values. Behind `attention_tiles.cu` and `groups.cuh`; keys lie in the same order, and each warp has 16 rows as there.

// What lies in shared memory for `groups.cuh`: rows of 128 bytes, whose 16-byte parts are swapped in patterns of 8 rows; where a
// row has more than that, strips of such rows, one behind another.
struct Lines {
    static constexpr int32 LINE = 128, PATTERN = 8 * LINE, PARTS = LINE / 16, COLUMNS = LINE / 2;

    static __device__ __forceinline__ int32 place(int32 row, int32 part) { return row * LINE + ((part ^ row % 8) << 4); }

    static __host__ __device__ constexpr int32 strips(int32 columns) { return (columns + COLUMNS - 1) / COLUMNS; }
};

// COUNT rows of WIDTH elements into shared memory, as `bring` has it.
template <typename T, int THREADS, int COUNT, int WIDTH, bool STEADY, typename Place, typename Spot>
__device__ __forceinline__ void bring_lines(uint8* to, const T* from, int32 first, int32 end, int32 size, int32 step, bool even,
                                            Place place, Spot spot) {
    constexpr int32 EIGHT = 8, STRIP = COUNT * Lines::LINE;
    if (even) {
        // A power of two, so that what is the same for all threads is known when this is compiled.
        constexpr int32 ACROSS = WIDTH <= 64 ? 8 : WIDTH <= 128 ? 16 : 32, DOWN = THREADS / ACROSS;
        const int32 row = threadIdx.x / ACROSS, part = threadIdx.x % ACROSS, own = spot(row);
        if (ACROSS * EIGHT > WIDTH && part * EIGHT >= WIDTH) return;
        to += part / Lines::PARTS * STRIP;
        from += part * EIGHT;
        const T* at = from + place(first + row);
        const int64 hop = place(DOWN);
        const int32 rows = part * EIGHT < size ? end - first - row : 0;
        #pragma unroll
        for (int32 j = 0; j < COUNT; j += DOWN) {
            if (!STEADY) at = from + place(first + row + j);
            // Spots permute bits: where rows and steps share none, the sum's is the sum of both.
            const int32 there = DOWN & (DOWN - 1) ? spot(row + j) : own + spot(j);
            if (j + DOWN <= COUNT || row + j < COUNT) fetch(to + Lines::place(there, part % Lines::PARTS), at, j < rows);
            if (STEADY) at += hop;
        }
        return;
    }
    #pragma unroll 1
    for (int32 i = threadIdx.x; i < COUNT * WIDTH; i += THREADS) {
        const int32 row = i / WIDTH, column = i % WIDTH, part = column / EIGHT;
        T element = {0};
        if (first + row < end && column < size) element = from[place(first + row) + (int64)column * step];
        ((T*)(to + part / Lines::PARTS * STRIP + Lines::place(spot(row), part % Lines::PARTS)))[column % EIGHT] = element;
    }
}

// Weights as the left operand that meets the values.
template <typename T, int KEYS>
__device__ __forceinline__ void keep_weights(uint32 (&weights)[KEYS / 16][4], const float (&score)[KEYS / 8][4]) {
    #pragma unroll
    for (int32 n = 0; n < KEYS / 16; n++) {
        const float(&low)[4] = score[n * 2], (&high)[4] = score[n * 2 + 1];
        weights[n][0] = Two<T>::from(low[0], low[1]);
        weights[n][1] = Two<T>::from(low[2], low[3]);
        weights[n][2] = Two<T>::from(high[0], high[1]);
        weights[n][3] = Two<T>::from(high[2], high[3]);
    }
}

// Sizes of keys up to D, a multiple of 16, and of values up to DV, which `groups.cuh` has products of; GROUPS warpgroups of 64
// rows each. Scales are not negative.
template <typename T, int D, int DV, int GROUPS, bool CAUSAL, int MASK, bool CAPPED, typename Y>
__device__ void attend_in_groups(Y* y, const T* q, const T* k, const T* v, const typename MaskOf<T, MASK>::type* mask,
                                 float* partial, const Attend& s) {
    constexpr int32 KEYS = 64, GROUP_ROWS = 64, ROWS = GROUPS * GROUP_ROWS, THREADS = GROUPS * 128, Y_ROW = DV + 8;
    constexpr int32 STRIP = KEYS * Lines::LINE, K_BYTES = Lines::strips(D) * STRIP;
    constexpr int32 TILE_BYTES = K_BYTES + Lines::strips(DV) * STRIP;
    extern __shared__ __align__(1024) uint8 lines[];
    // Two tiles of keys and values each; then the queries, whose place the results take.
    uint8* const queries = lines + 2 * TILE_BYTES;
    const Share share(s, ROWS, 1, CAUSAL);
    q += share.start(s.q, s.group);
    k += share.start(s.k, 1);
    v += share.start(s.v, 1);
    const auto spread = [](int32 row) { return spot<KEYS>(row); };
    const auto bring_keys = [&](int32 tile) {
        bring_lines<T, THREADS, KEYS, D, true>(lines + tile % 2 * TILE_BYTES, k, share.from + tile * KEYS, share.to, s.size, s.k[3],
                                               s.even, [&](int32 key) { return (int64)key * s.k[2]; }, spread);
    };
    const auto bring_values = [&](int32 tile) {
        bring_lines<T, THREADS, KEYS, DV, true>(lines + tile % 2 * TILE_BYTES + K_BYTES, v, share.from + tile * KEYS, share.to,
                                                s.v_size, s.v[3], s.even, [&](int32 key) { return (int64)key * s.v[2]; }, spread);
    };
    // What copies wrote is seen by all, and by instructions of warpgroups. Whatever was multiplied before is done with, too.
    const auto meet = [] {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
    };
    const int32 tiles = share.to > share.from ? (share.to - share.from + KEYS - 1) / KEYS : 0;
    bring_lines<T, THREADS, ROWS, D, false>(queries, q, share.first, share.rows, s.size, s.q[3], s.even,
                                            [&](int32 r) { return within(s, s.q, r); }, [](int32 row) { return row; });
    if (tiles > 0) bring_keys(0);
    fetched();
    if (tiles > 0) bring_values(0);
    if (tiles > 1) bring_keys(1);
    fetched();

    // The warp's rows within the block; how many tiles those of its warpgroup see.
    const int32 first = threadIdx.x / 32 * 16, group_first = first / GROUP_ROWS * GROUP_ROWS;
    const int32 end = share.end(s, group_first, GROUP_ROWS, CAUSAL);
    const int32 seen = end > share.from ? (end - share.from + KEYS - 1) / KEYS : 0;
    const Scores how = scores_of<MASK, CAPPED>(s);
    Sight<T, KEYS, MASK> sight;
    sight.template begin<CAUSAL>(mask, first, share, s);
    const int32 least = CAUSAL ? sight.least() : 0;
    if (seen > 0) sight.look(share.from, s);
    float greatest[2] = {minus_infinity(), minus_infinity()}, sum[2] = {0.0f, 0.0f}, shrink[2];
    float value[DV / 8][4] = {}, score[KEYS / 8][4];
    uint32 weights[KEYS / 16][4];
    const uint32 left = shared_address(queries) + group_first * Lines::LINE;
    const auto multiply_keys = [&](int32 tile) {
        const uint32 right = shared_address(lines + tile % 2 * TILE_BYTES);
        products_begin();
        #pragma unroll
        for (int32 d = 0; d < D / 16; d++) {
            const int32 strip = d / 4, part = d % 4 * 32;
            multiply_add<true>(T(), (float(&)[KEYS / 2])score,
                               described(left + strip * ROWS * Lines::LINE + part, 16, Lines::PATTERN),
                               described(right + strip * STRIP + part, 16, Lines::PATTERN), d > 0);
        }
        products_commit();
    };
    const auto multiply_values = [&](int32 tile) {
        const uint32 right = shared_address(lines + tile % 2 * TILE_BYTES + K_BYTES);
        products_begin();
        #pragma unroll
        for (int32 n = 0; n < KEYS / 16; n++) {
            multiply_add<false>(T(), (float(&)[DV / 2])value, weights[n],
                                described(right + n * 16 * Lines::LINE, STRIP, Lines::PATTERN));
        }
        products_commit();
    };
    const auto weigh_keys = [&](int32 tile) {
        const int32 start = share.from + tile * KEYS;
        const bool edge = start + KEYS > end || (CAUSAL && start + KEYS > least);
        hide<T, KEYS, CAUSAL, MASK, CAPPED>(score, sight, start, end, edge, how);
        if (tile + 1 < seen) sight.look(start + KEYS, s);
        weigh<KEYS, MASK>(score, greatest, sum, shrink, how.unit);
    };
    const auto bring_next = [&](int32 tile) {
        if (tile + 1 < tiles) bring_values(tile + 1);
        if (tile + 2 < tiles) bring_keys(tile + 2);
        fetched();
    };
    arrived<1>();
    meet();
    if (seen > 0) {
        multiply_keys(0);
        products_wait<0>();
        weigh_keys(0);
        keep_weights<T, KEYS>(weights, score);
    }
    // Scores of the next tile are multiplied while the weights of this one meet the values, and become weights meanwhile.
    int32 tile = 0;
    #pragma unroll 1
    for (; tile + 1 < seen; tile++) {
        arrived<0>();
        meet();
        multiply_keys(tile + 1);
        multiply_values(tile);
        bring_next(tile);
        products_wait<1>();
        weigh_keys(tile + 1);
        products_wait<0>();
        shrink_values<DV>(value, shrink);
        keep_weights<T, KEYS>(weights, score);
    }
    if (tile < seen) {
        arrived<0>();
        meet();
        multiply_values(tile);
        bring_next(tile);
        products_wait<0>();
        tile++;
    }
    // What other warpgroups see.
    #pragma unroll 1
    for (; tile < tiles; tile++) {
        arrived<0>();
        meet();
        bring_next(tile);
    }
    // Results take the place of queries, which other warps may still read.
    arrived<0>();
    __syncthreads();
    sum_lanes<MASK>(greatest, sum, how.unit);
    T* const own = (T*)queries + first * Y_ROW;
    if (s.splits.size > 1) keep<DV>(partial, value, greatest, sum, first, share, s);
    else give<T, DV, Y_ROW>(y, own, value, sum, first, share, s);
}
