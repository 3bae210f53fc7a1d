// Attention on tensor cores: each warp has 16 rows, and the block a tile of keys and values in shared memory while the
// next one is on its way. Scores and results are summed in float; weights meet the values as elements.

// Rows of the largest block: four warps.
constexpr int32 MOST_ROWS = 64;
constexpr float LOG2_E = 1.4426950408889634f;

// Rows into shared memory, of WIDTH columns there; zeros from row `end` and column `size` on. Where heads share keys,
// the rows of a head follow those of the one before.
template <typename T, int WIDTH, int ROW, bool HEADS>
__device__ __forceinline__ void bring(T* to, int32 count, const T* from, const int32 (&step)[4], int32 first, int32 end,
                                      int32 size, int32 queries, bool even) {
    const auto place = [&](int32 r) {
        return HEADS ? (int64)(r / queries) * step[1] + (int64)(r % queries) * step[2] : (int64)r * step[2];
    };
    if (even) {
        constexpr int32 PACKS = WIDTH / 8;
        for (int32 i = threadIdx.x; i < count * PACKS; i += blockDim.x) {
            const int32 row = i / PACKS, column = i % PACKS * 8;
            const bool there = first + row < end && column < size;
            fetch(to + row * ROW + column, from + (there ? place(first + row) + column : 0), there);
        }
        return;
    }
    for (int32 i = threadIdx.x; i < count * WIDTH; i += blockDim.x) {
        const int32 row = i / WIDTH, column = i % WIDTH;
        T element = {0};
        if (first + row < end && column < size) element = from[place(first + row) + (int64)column * step[3]];
        to[row * ROW + column] = element;
    }
}

// What a lane knows of its two rows.
template <typename M>
struct Sight {
    int32 place[2];
    const M* mask[2];
};

// Scores of a warp's rows and a tile of keys, scaled, capped and masked. They are exponents of two, unless numbers are
// added: those may be as low as a float can be, and would become minus infinity.
template <typename T, int KEYS, bool CAUSAL, int MASK, bool CAPPED>
__device__ __forceinline__ void hide(float (&score)[KEYS / 8][4], const Sight<typename MaskOf<T, MASK>::type>& sight,
                                     int32 start, const Share& share, const Attend& s) {
    constexpr float UNIT = MASK == NUMBERS ? 1.0f : LOG2_E;
    const float factor = CAPPED ? (float)s.scale / (float)s.cap : (float)s.scale * UNIT;
    const float cap = (float)s.cap * UNIT;
    const bool edge = start + KEYS > share.to || (CAUSAL && start + KEYS - 1 > share.least);
    const bool alike = sight.mask[0] == sight.mask[1];
    #pragma unroll
    for (int32 n = 0; n < KEYS / 8; n++) {
        #pragma unroll
        for (int32 c = 0; c < 2; c++) {
            const int32 key = start + n * 8 + threadIdx.x % 4 * 2 + c;
            typename MaskOf<T, MASK>::type found[2];
            if (MASK != NO_MASK && (!edge || key < share.to)) {
                found[0] = sight.mask[0][(int64)key * s.mask[3]];
                found[1] = alike ? found[0] : sight.mask[1][(int64)key * s.mask[3]];
            }
            #pragma unroll
            for (int32 i = 0; i < 2; i++) {
                float x = score[n][i * 2 + c] * factor;
                if (CAPPED) x = tanh(x) * cap;
                const bool hidden = edge && (key >= share.to || (CAUSAL && key > sight.place[i]));
                if (hidden) x = minus_infinity();
                else if constexpr (MASK == TRUTHS) x = found[i] ? x : minus_infinity();
                else if constexpr (MASK == NUMBERS) x += widen(found[i]);
                score[n][i * 2 + c] = x;
            }
        }
    }
}

// Scores to weights; what was gathered before shrinks where a greater score came. The sums are those of the lane.
template <int KEYS, int DV>
__device__ __forceinline__ void weigh(float (&score)[KEYS / 8][4], float (&value)[DV / 8][4], float (&greatest)[2],
                                      float (&sum)[2], float unit) {
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        float most = greatest[i];
        #pragma unroll
        for (int32 n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(score[n][i * 2], score[n][i * 2 + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        // A row that saw nothing so far has weights of zero, not NaN.
        const float base = most == minus_infinity() ? 0.0f : most;
        const float shrink = power_of_two((greatest[i] - base) * unit);
        greatest[i] = most;
        float total = 0.0f;
        #pragma unroll
        for (int32 n = 0; n < KEYS / 8; n++) {
            #pragma unroll
            for (int32 c = 0; c < 2; c++) {
                const float weight = power_of_two((score[n][i * 2 + c] - base) * unit);
                score[n][i * 2 + c] = weight;
                total += weight;
            }
        }
        sum[i] = sum[i] * shrink + total;
        #pragma unroll
        for (int32 n = 0; n < DV / 8; n++) {
            value[n][i * 2] *= shrink;
            value[n][i * 2 + 1] *= shrink;
        }
    }
}

// The results of a warp's rows: through the shared memory that held its queries, so that 16 bytes are written at once.
template <typename T, int DV, int ROW>
__device__ __forceinline__ void give(T* y, T* own, const float (&value)[DV / 8][4], const float (&sum)[2], int32 first,
                                     const Share& share, const Attend& s) {
    const int32 lane = threadIdx.x % 32;
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        const float over = 1.0f / sum[i];
        #pragma unroll
        for (int32 n = 0; n < DV / 8; n++) {
            const float low = sum[i] == 0.0f ? s.blind : value[n][i * 2] * over;
            const float high = sum[i] == 0.0f ? s.blind : value[n][i * 2 + 1] * over;
            *(uint32*)(own + (lane / 4 + i * 8) * ROW + n * 8 + lane % 4 * 2) = Two<T>::from(low, high);
        }
    }
    __syncwarp();
    for (int32 i = lane; i < 16 * (DV / 8); i += 32) {
        const int32 row = i / (DV / 8), column = i % (DV / 8) * 8;
        if (first + row >= share.rows || column >= s.v_size) continue;
        const T* from = own + row * ROW + column;
        T* to = y + share.row(s, s.y, first + row) + (int64)column * s.y[3];
        if (s.even) {
            *(Pack<uint32, 4>*)to = *(const Pack<uint32, 4>*)from;
        } else {
            for (int32 c = 0; c < 8 && column + c < s.v_size; c++) to[(int64)c * s.y[3]] = from[c];
        }
    }
}

// What a warp's rows gathered of a part of the keys.
template <int DV>
__device__ __forceinline__ void keep(float* partial, const float (&value)[DV / 8][4], const float (&greatest)[2],
                                     const float (&sum)[2], int32 first, const Share& share, const Attend& s) {
    const int32 lane = threadIdx.x % 32;
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        const int32 r = first + lane / 4 + i * 8;
        if (r >= share.rows) continue;
        const int64 number = share.number(s, r);
        if (lane % 4 == 0) {
            float* own = statistics(partial, s, share.split, number);
            own[0] = greatest[i];
            own[1] = sum[i];
        }
        float* to = gathered(partial, s, share.split, number);
        #pragma unroll
        for (int32 n = 0; n < DV / 8; n++) {
            #pragma unroll
            for (int32 c = 0; c < 2; c++) {
                const int32 column = n * 8 + lane % 4 * 2 + c;
                if (column < s.v_size) to[column] = value[n][i * 2 + c];
            }
        }
    }
}

// Sizes of keys up to D and of values up to DV, both multiples of 16; KEYS keys in a tile.
template <typename T, int D, int DV, int KEYS, bool CAUSAL, int MASK, bool CAPPED>
__device__ void attend(T* y, const T* q, const T* k, const T* v, const typename MaskOf<T, MASK>::type* mask,
                       float* partial, const Attend& s) {
    // Rows are 16 bytes longer than a multiple of 32: no two of eight rows that are read at once want the same banks.
    constexpr int32 Q_ROW = (D > DV ? D : DV) + 8, K_ROW = D + 8, V_ROW = DV + 8;
    // Queries stay in registers where there is room beside the results.
    constexpr bool KEPT = D <= 128;
    extern __shared__ Pack<uint32, 4> memory[];
    T* const q_tile = (T*)memory;
    T* const k_tiles = q_tile + MOST_ROWS * Q_ROW;
    T* const v_tiles = k_tiles + 2 * KEYS * K_ROW;
    const int32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, tile_rows = blockDim.x / 2;
    const Share share(s, tile_rows, 1, CAUSAL);
    const int32 first = share.first + warp * 16;
    T* const own = q_tile + warp * 16 * Q_ROW;
    k += share.start(s.k);
    v += share.start(s.v);
    const auto bring_keys = [&](int32 tile) {
        const int32 start = share.from + tile * KEYS, stage = tile % 2 * KEYS;
        bring<T, D, K_ROW, false>(k_tiles + stage * K_ROW, KEYS, k, s.k, start, share.to, s.size, 1, s.even);
        bring<T, DV, V_ROW, false>(v_tiles + stage * V_ROW, KEYS, v, s.v, start, share.to, s.v_size, 1, s.even);
    };
    const int32 tiles = share.to > share.from ? (share.to - share.from + KEYS - 1) / KEYS : 0;
    const int64 q_start = (int64)share.batch * s.q[0] + (int64)share.head * s.group * s.q[1];
    bring<T, D, Q_ROW, true>(q_tile, tile_rows, q + q_start, s.q, share.first, share.rows, s.size, s.queries, s.even);
    if (tiles > 0) bring_keys(0);
    fetched();
    if (tiles > 1) bring_keys(1);
    fetched();

    Sight<typename MaskOf<T, MASK>::type> sight;
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        // The rows behind the last one do what it does, and give nothing.
        const int32 r = first + lane / 4 + i * 8 < share.rows ? first + lane / 4 + i * 8 : share.rows - 1;
        sight.place[i] = r % s.queries;
        sight.mask[i] = MASK == NO_MASK ? mask : mask + share.row(s, s.mask, r);
    }
    float greatest[2] = {minus_infinity(), minus_infinity()}, sum[2] = {0.0f, 0.0f};
    float value[DV / 8][4] = {};
    uint32 kept[KEPT ? D / 16 : 1][4];
    const T* const q_row = own + lane % 16 * Q_ROW + lane / 16 * 8;
    for (int32 tile = 0; tile < tiles; tile++) {
        arrived<1>();
        __syncthreads();
        if (KEPT && tile == 0) {
            #pragma unroll
            for (int32 d = 0; d < D / 16; d++) load_matrices(kept[KEPT ? d : 0], q_row + d * 16);
        }
        const T* const k_tile = k_tiles + tile % 2 * KEYS * K_ROW + (lane % 8 + lane / 16 * 8) * K_ROW + lane / 8 % 2 * 8;
        const T* const v_tile = v_tiles + tile % 2 * KEYS * V_ROW + lane % 16 * V_ROW + lane / 16 * 8;
        float score[KEYS / 8][4] = {};
        #pragma unroll
        for (int32 d = 0; d < D / 16; d++) {
            uint32 a[4];
            if (!KEPT) load_matrices(a, q_row + d * 16);
            #pragma unroll
            for (int32 n = 0; n < KEYS / 16; n++) {
                uint32 b[4];
                load_matrices(b, k_tile + n * 16 * K_ROW + d * 16);
                Product16<T>::add(score[n * 2], KEPT ? kept[KEPT ? d : 0] : a, b[0], b[1]);
                Product16<T>::add(score[n * 2 + 1], KEPT ? kept[KEPT ? d : 0] : a, b[2], b[3]);
            }
        }
        hide<T, KEYS, CAUSAL, MASK, CAPPED>(score, sight, share.from + tile * KEYS, share, s);
        weigh<KEYS, DV>(score, value, greatest, sum, MASK == NUMBERS ? LOG2_E : 1.0f);
        #pragma unroll
        for (int32 n = 0; n < KEYS / 16; n++) {
            const uint32 a[4] = {Two<T>::from(score[n * 2][0], score[n * 2][1]), Two<T>::from(score[n * 2][2], score[n * 2][3]),
                                 Two<T>::from(score[n * 2 + 1][0], score[n * 2 + 1][1]),
                                 Two<T>::from(score[n * 2 + 1][2], score[n * 2 + 1][3])};
            #pragma unroll
            for (int32 d = 0; d < DV / 16; d++) {
                uint32 b[4];
                load_turned(b, v_tile + n * 16 * V_ROW + d * 16);
                Product16<T>::add(value[d * 2], a, b[0], b[1]);
                Product16<T>::add(value[d * 2 + 1], a, b[2], b[3]);
            }
        }
        // Whoever still reads the tile must be done before the one after the next takes its place.
        __syncthreads();
        if (tile + 2 < tiles) bring_keys(tile + 2);
        fetched();
    }
    arrived<0>();
    __syncthreads();
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
    }
    if (s.splits > 1) keep<DV>(partial, value, greatest, sum, first, share, s);
    else give<T, DV, Q_ROW>(y, own, value, sum, first, share, s);
}
