// Matrix products of 16-bit floats on tensor cores. Behind `matmul.cu` and `products.cuh`.

// Brings a tile to shared memory; `rows` and `columns` are those that are left from its corner on.
template <int ROWS, int COLUMNS, int THREADS, typename T>
__device__ __forceinline__ void fetch(uint32 shared, uint8* memory, const T* from, int32 pitch, int32 rows, int32 columns,
                                      bool wide) {
    constexpr int CHUNKS = COLUMNS / 8;
    #pragma unroll
    for (int32 i = 0; i < ROWS * CHUNKS / THREADS; i++) {
        const int32 at = i * THREADS + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
        const int32 there = row < rows ? min(max(columns - chunk * 8, 0), 8) : 0;
        const T* source = there > 0 ? from + (uint64)row * pitch + chunk * 8 : from;
        const uint32 to = spread<CHUNKS>(row, chunk);
        if (wide) {
            copy_ahead(shared + to, source, there * (int32)sizeof(T));
        } else {
            Pack<T, 8> pack;
            #pragma unroll
            for (int32 k = 0; k < 8; k++) pack.item[k].bits = k < there ? source[k].bits : (uint16)0;
            *(Pack<T, 8>*)(memory + to) = pack;
        }
    }
}

// A block whose operands lie transposed where TA and TB say so.
template <int BM, int BN, int BK, int WARPS_M, int WARPS_N, int STAGES, int SPLIT, bool TA_, bool TB_>
struct Tile : Block<BM, BN, BK, WARPS_M, WARPS_N, 1, STAGES, SPLIT> {
    static constexpr bool TA = TA_, TB = TB_;
    // How the operands lie in shared memory.
    static constexpr int A_ROWS = TA ? BK : BM, A_COLUMNS = TA ? BM : BK;
    static constexpr int B_ROWS = TB ? BN : BK, B_COLUMNS = TB ? BK : BN;
};

// 16 rows of the left operand by 16 terms, out of a stage.
template <typename L>
__device__ __forceinline__ void load_left(uint32 (&into)[4], uint32 a, uint32 row, uint32 k) {
    const uint32 lane = threadIdx.x % 32;
    if (L::TA) {
        const uint32 r = k + lane % 8 + lane / 16 * 8, chunk = row / 8 + lane / 8 % 2;
        load_transposed(into, a + spread<L::A_COLUMNS / 8>(r, chunk));
    } else {
        load_matrices(into, a + spread<L::A_COLUMNS / 8>(row + lane % 16, k / 8 + lane / 16));
    }
}

// 16 columns of the right operand.
template <typename L>
__device__ __forceinline__ void load_right(uint32 (&into)[4], uint32 b, uint32 column, uint32 k) {
    const uint32 lane = threadIdx.x % 32;
    if (L::TB) load_columns<L>(into, b, column, k);
    else load_transposed(into, b + spread<L::B_COLUMNS / 8>(k + lane % 16, column / 8 + lane / 16));
}

// Where the tile of a block begins, and in which product of the batch.
struct Corner {
    uint32 batch;
    int32 row, column;
};

// Sums up a tile; SPLIT blocks of a cluster take a share of the terms each. HELD says that nobody writes the right operand any more.
template <typename L, bool HELD, typename T>
__device__ __forceinline__ void sum_up(float (&sums)[L::WM / 16][L::WN / 8][4], uint8* memory, const T* a, const T* b,
                                       const Product& s, const Corner& corner) {
    const uint32 batch = corner.batch;
    const int32 row = corner.row, column = corner.column;
    const int32 a_pitch = L::TA ? s.left[1] : s.left[0], b_pitch = L::TB ? s.right[1] : s.right[0];
    a += place(s.batch, s.left_steps, batch) + (L::TA ? (uint64)row : (uint64)row * a_pitch);
    b += place(s.batch, s.right_steps, batch) + (L::TB ? (uint64)column * b_pitch : (uint64)column);
    const bool a_wide = (uint64)a % 16 == 0 && a_pitch % 8 == 0, b_wide = (uint64)b % 16 == 0 && b_pitch % 8 == 0;
    const int32 depths = (s.k + L::BK - 1) / L::BK, share = (depths + L::SPLIT - 1) / L::SPLIT;
    const int32 start = L::SPLIT > 1 ? blockIdx.z * share : 0, end = min(start + share, depths);
    const uint32 shared = shared_address(memory);
    const auto load_a = [&](int32 step) {
        const int32 k = (start + step) * L::BK, stage = step % L::STAGES * L::STAGE_BYTES, rows = s.m - row, left = s.k - k;
        fetch<L::A_ROWS, L::A_COLUMNS, L::THREADS>(shared + stage, memory + stage, a + (L::TA ? (uint64)k * a_pitch : (uint64)k),
                                                   a_pitch, L::TA ? left : rows, L::TA ? rows : left, a_wide);
    };
    const auto load_b = [&](int32 step) {
        const int32 k = (start + step) * L::BK, stage = step % L::STAGES * L::STAGE_BYTES + L::A_BYTES;
        const int32 columns = s.n - column, left = s.k - k;
        fetch<L::B_ROWS, L::B_COLUMNS, L::THREADS>(shared + stage, memory + stage,
                                                   b + (L::TB ? (uint64)k : (uint64)k * b_pitch), b_pitch,
                                                   L::TB ? columns : left, L::TB ? left : columns, b_wide);
    };
    const auto read = [&](int32 step, Fragments<L>& into) {
        const uint32 a_stage = shared + step % L::STAGES * L::STAGE_BYTES, b_stage = a_stage + L::A_BYTES;
        const auto left = [&](uint32(&four)[4], uint32 i, uint32 k) { load_left<L>(four, a_stage, L::row() + i * 16, k); };
        const auto right = [&](uint32(&four)[4], uint32 j, uint32 k) { load_right<L>(four, b_stage, L::column() + j * 16, k); };
        into.read(left, right);
    };
    const auto load = [&](int32 step) {
        load_a(step);
        load_b(step);
    };
    const auto early = [&](int32 step) {
        if (HELD) load_b(step);
    };
    const auto rest = [&](int32 step) {
        load_a(step);
        if (!HELD) load_b(step);
    };
    begin_steps<L>(end - start, early, rest);
    take_steps<L, T>(sums, end - start, load, read);
}

template <typename L, bool HELD, typename T, typename Y, typename Tail>
__device__ __forceinline__ void gemm(Y* y, const T* a, const T* b, const Tail& tail, const Product& s) {
    extern __shared__ __align__(128) uint8 memory[];
    const uint32 down = (s.m + L::BM - 1) / L::BM, across = (s.n + L::BN - 1) / L::BN;
    const uint32 batch = blockIdx.x / (down * across), tile = blockIdx.x % (down * across);
    // Eight rows of tiles go through the columns together: what they read of `b` stays in the cache.
    const uint32 first = tile / (8 * across) * 8, high = min(down - first, 8u), within = tile % (8 * across);
    const int32 row = (first + within % high) * L::BM, column = within / high * L::BN;
    float sums[L::WM / 16][L::WN / 8][4] = {};
    sum_up<L, HELD>(sums, memory, a, b, s, Corner{batch, row, column});
    const bool wide = s.n % 8 == 0 && (uint64)y % sizeof(Pack<Y, 8>) == 0 && tail.wide();
    finish<L>((float*)memory, sums, [&](int32, int32 r, int32 c, const float* laid) {
        if (row + r >= s.m || column + c >= s.n) return;
        float eight[8];
        collect<L>(eight, laid);
        const uint64 at = ((uint64)batch * s.m + row + r) * s.n + column + c;
        if (wide) {
            *(Pack<Y, 8>*)(y + at) = tail.pack(eight, at, column + c);
        } else {
            for (int32 k = 0; k < 8 && column + c + k < s.n; k++) y[at + k] = tail.one(eight[k], at + k, column + c + k);
        }
    });
}
