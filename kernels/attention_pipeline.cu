// Attention on Hopper without a mask: the copy engine brings tiles of keys and values, which all warpgroups of a block read, and
// each of them has the scores of the next tile multiplied while the weights of the one before meet the values. The order is that
// of FlashAttention-3 (Shah et al., 2024), in which a warpgroup's softmax lies behind products of its own and of others. Behind
// `attention_groups.cu` and `copies.cuh`.

// How keys and values lie: whether there are some for each batch and head, or the same for all.
struct KvMoves {
    int32 k_batch, k_head, v_batch, v_head;
};

// What lies in shared memory: tiles of keys and of values in turn, then the queries, whose place the results take.
template <int D, int DV, int KEYS_, int GROUPS_>
struct Stages {
    static constexpr int32 KEYS = KEYS_, GROUPS = GROUPS_, COUNT = 2, GROUP_ROWS = 64, ROWS = GROUPS * GROUP_ROWS;
    // Threads that multiply. One of another warpgroup fetches, which lends them its registers.
    static constexpr int32 THREADS = GROUPS * 128;
    static constexpr int32 STRIP = KEYS * Lines::LINE, K_BYTES = Lines::strips(D) * STRIP, V_BYTES = Lines::strips(DV) * STRIP;
    static constexpr int32 V_PLACE = COUNT * K_BYTES, Q_PLACE = V_PLACE + COUNT * V_BYTES;
};

// The barriers of the stages.
struct Barriers {
    uint32 k_full, k_empty, v_full, v_empty;
};

// One thread asks for all tiles, as stages become empty.
template <typename L>
__device__ __forceinline__ void fetch_tiles(const TensorMap* keys, const TensorMap* values, const Share& share, const KvMoves& kv_moves,
                                            int32 tiles, uint32 memory, const Barriers& barriers) {
    Turn<L::COUNT> turn;
    const auto ask = [&](const TensorMap* map, int32 tile, int32 bytes, uint32 to, uint32 full, uint32 empty, int32 batch, int32 head) {
        barrier_wait(empty + turn.stage * 8, turn.parity ^ 1);
        barrier_expect(full + turn.stage * 8, bytes);
        for (int32 strip = 0; strip * L::STRIP < bytes; strip++) {
            bring(to + turn.stage * bytes + strip * L::STRIP, map, strip * Lines::COLUMNS, share.from + tile * L::KEYS,
                  share.head * head, share.batch * batch, full + turn.stage * 8);
        }
    };
    for (int32 tile = 0; tile < tiles; tile++) {
        ask(keys, tile, L::K_BYTES, memory, barriers.k_full, barriers.k_empty, kv_moves.k_batch, kv_moves.k_head);
        ask(values, tile, L::V_BYTES, memory + L::V_PLACE, barriers.v_full, barriers.v_empty, kv_moves.v_batch, kv_moves.v_head);
        turn.next();
    }
}

// Scores of keys in their order, capped and hidden: a lane has two neighbours of every eight.
template <int KEYS, bool CAUSAL, bool CAPPED>
__device__ __forceinline__ void hide_behind(float (&score)[KEYS / 8][4], const int32 (&place)[2], int32 start, int32 end, bool edge,
                                            const Scores& how) {
    #pragma unroll
    for (int32 n = 0; CAPPED && n < KEYS / 8; n++) {
        #pragma unroll
        for (int32 i = 0; i < 4; i++) score[n][i] = f_fast_tanh(score[n][i] * how.factor) * how.cap;
    }
    if (!edge) return;
    const int32 key = start + threadIdx.x % 4 * 2;
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        const int32 left = (CAUSAL && place[i] < end ? place[i] + 1 : end) - key;
        #pragma unroll
        for (int32 n = 0; n < KEYS / 8; n++) {
            #pragma unroll
            for (int32 c = 0; c < 2; c++) {
                if (n * 8 + c >= left) score[n][i * 2 + c] = minus_infinity();
            }
        }
    }
}

// Scales are not negative.
template <typename T, int D, int DV, int KEYS, int GROUPS, bool CAUSAL, bool CAPPED, typename Y>
__device__ __forceinline__ void attend_tiles(Y* y, const T* q, float* partial, const Share& share, int32 tiles, uint8* memory,
                                             const Barriers& barriers, const Attend& s) {
    typedef Stages<D, DV, KEYS, GROUPS> L;
    uint8* const queries = memory + L::Q_PLACE;
    bring_lines<T, L::THREADS, L::ROWS, D, false>(queries, q, share.first, share.rows, s.size, s.q[3], s.even,
                                                  [&](int32 r) { return within(s, s.q, r); }, [](int32 row) { return row; });
    fetched();
    // The warp's rows within the block; how many tiles those of its warpgroup see.
    const int32 first = threadIdx.x / 32 * 16, group_first = first / L::GROUP_ROWS * L::GROUP_ROWS;
    const int32 end = share.end(s, group_first, L::GROUP_ROWS, CAUSAL);
    const int32 seen = end > share.from ? (end - share.from + KEYS - 1) / KEYS : 0;
    const Scores how = scores_of<NO_MASK, CAPPED>(s);
    Sight<T, KEYS, NO_MASK> sight;
    sight.template begin<CAUSAL>(nullptr, first, share, s);
    const int32 least = CAUSAL ? sight.least() : 0;
    float greatest[2] = {minus_infinity(), minus_infinity()}, sum[2] = {0.0f, 0.0f}, shrink[2] = {1.0f, 1.0f};
    float value[DV / 8][4] = {}, score[KEYS / 8][4];
    uint32 weights[KEYS / 16][4];
    const uint64 left = described(shared_address(queries) + group_first * Lines::LINE, 16, Lines::PATTERN);
    const uint64 k_first = described(shared_address(memory), 16, Lines::PATTERN);
    const uint64 v_first = described(shared_address(memory) + L::V_PLACE, L::STRIP, Lines::PATTERN);
    Turn<L::COUNT> k_turn, v_turn;
    const auto release = [&](uint32 empty) {
        if (threadIdx.x % 128 == 0) barrier_arrive(empty);
    };
    const auto multiply_keys = [&] {
        barrier_wait(barriers.k_full + k_turn.stage * 8, k_turn.parity);
        const uint64 right = k_first + k_turn.stage * (L::K_BYTES >> 4);
        products_begin();
        #pragma unroll
        for (int32 d = 0; d < D / 16; d++) {
            const int32 strip = d / 4, part = d % 4 * 32;
            multiply_add<true>(T(), (float(&)[KEYS / 2])score, left + ((strip * L::ROWS * Lines::LINE + part) >> 4),
                               right + ((strip * L::STRIP + part) >> 4), d > 0);
        }
        products_commit();
    };
    const auto multiply_values = [&] {
        barrier_wait(barriers.v_full + v_turn.stage * 8, v_turn.parity);
        const uint64 right = v_first + v_turn.stage * (L::V_BYTES >> 4);
        products_begin();
        #pragma unroll
        for (int32 n = 0; n < KEYS / 16; n++) {
            multiply_add<false>(T(), (float(&)[DV / 2])value, weights[n], right + (n * 16 * Lines::LINE >> 4));
        }
        products_commit();
    };
    const auto keys_are_read = [&] {
        // Sums are not negative.
        release(barriers.k_empty + k_turn.stage * 8 + (sum[0] < 0.0f || sum[1] < 0.0f));
        k_turn.next();
    };
    const auto values_are_read = [&] {
        release(barriers.v_empty + v_turn.stage * 8);
        v_turn.next();
    };
    const auto weigh_keys = [&](int32 tile) {
        const int32 start = share.from + tile * KEYS;
        const bool edge = start + KEYS > end || (CAUSAL && start + KEYS > least);
        hide_behind<KEYS, CAUSAL, CAPPED>(score, sight.place, start, end, edge, how);
        weigh<KEYS, NO_MASK>(score, greatest, sum, shrink, how.unit);
    };
    const auto take_weights = [&] {
        shrink_values<DV>(value, shrink);
        keep_weights<T, KEYS>(weights, score);
        // Here, and not in front of the product that reads them, where others are on their way.
        #pragma unroll
        for (int32 n = 0; n < KEYS / 16; n++) {
            asm volatile("" : "+r"(weights[n][0]), "+r"(weights[n][1]), "+r"(weights[n][2]), "+r"(weights[n][3]));
        }
    };
    const auto meet = [] { asm volatile("bar.sync 1, %0;" ::"n"(L::THREADS) : "memory"); };
    arrived<0>();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    meet();
    if (seen > 0) {
        multiply_keys();
        products_wait<0>();
        keys_are_read();
        weigh_keys(0);
        take_weights();
        #pragma unroll 1
        for (int32 tile = 1; tile < seen; tile++) {
            multiply_keys();
            multiply_values();
            products_wait<1>();
            weigh_keys(tile);
            // The compiler would wait for the values before it computes the weights, if this did not need the weights.
            keys_are_read();
            products_wait<0>();
            values_are_read();
            take_weights();
        }
        multiply_values();
        products_wait<0>();
        values_are_read();
    }
    // What other warpgroups see.
    #pragma unroll 1
    for (int32 tile = seen; tile < tiles; tile++) {
        barrier_wait(barriers.k_full + k_turn.stage * 8, k_turn.parity);
        keys_are_read();
        barrier_wait(barriers.v_full + v_turn.stage * 8, v_turn.parity);
        values_are_read();
    }
    // Results take the place of queries, which other warpgroups may still read.
    meet();
    sum_lanes<NO_MASK>(greatest, sum, how.unit);
    constexpr int32 Y_ROW = DV + 8;
    T* const own = (T*)queries + first * Y_ROW;
    if (s.splits.size > 1) keep<DV>(partial, value, greatest, sum, first, share, s);
    else give<T, DV, Y_ROW>(y, own, value, sum, first, share, s);
}

template <typename T, int D, int DV, int KEYS, int GROUPS, bool CAUSAL, bool CAPPED, typename Y>
__device__ void attend_in_pipeline(Y* y, const T* q, float* partial, const Attend& s, const KvMoves& kv_moves,
                                   const TensorMap* keys, const TensorMap* values) {
    typedef Stages<D, DV, KEYS, GROUPS> L;
    extern __shared__ uint8 dynamic[];
    __shared__ __align__(8) uint64 barrier[4 * L::COUNT];
    uint8* const memory = dynamic + (0u - shared_address(dynamic)) % Lines::PATTERN;
    const uint32 at = shared_address(barrier);
    const Barriers barriers = {at, at + L::COUNT * 8, at + 2 * L::COUNT * 8, at + 3 * L::COUNT * 8};
    if (threadIdx.x == L::THREADS) {
        expect_map(keys);
        expect_map(values);
        #pragma unroll
        for (int32 stage = 0; stage < L::COUNT; stage++) {
            barrier_init(barriers.k_full + stage * 8, 1);
            barrier_init(barriers.v_full + stage * 8, 1);
            barrier_init(barriers.k_empty + stage * 8, GROUPS);
            barrier_init(barriers.v_empty + stage * 8, GROUPS);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    const Share share(s, L::ROWS, 1, CAUSAL);
    const int32 tiles = share.to > share.from ? (share.to - share.from + KEYS - 1) / KEYS : 0;
    constexpr int32 KEPT = GROUPS == 2 ? 240 : 160, LENT = GROUPS == 2 ? 24 : 32;
    if (threadIdx.x >= L::THREADS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LENT));
        if (threadIdx.x == L::THREADS) fetch_tiles<L>(keys, values, share, kv_moves, tiles, shared_address(memory), barriers);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(KEPT));
        attend_tiles<T, D, DV, KEYS, GROUPS, CAUSAL, CAPPED>(y, q + share.start(s.q, s.group), partial, share, tiles, memory, barriers,
                                                             s);
    }
}
