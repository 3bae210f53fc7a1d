// Matrix products of 16-bit floats on tensor cores, summed in float. Behind `matmul.cu`.

__device__ __forceinline__ uint32 shared_address(const void* pointer) {
    return (uint32)__cvta_generic_to_shared(pointer);
}

// Copies 16 bytes to shared memory while the thread goes on; those beyond `bytes` become zero.
__device__ __forceinline__ void copy_ahead(uint32 to, const void* from, int32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

// Four 8 x 8 matrices whose rows lie at the addresses of eight lanes each.
__device__ __forceinline__ void load_matrices(uint32 (&into)[4], uint32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void load_transposed(uint32 (&into)[4], uint32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(row)
                 : "memory");
}

// 16 x 16 by 16 x 8, added to the sums.
__device__ __forceinline__ void multiply_add(float16, float (&d)[4], const uint32 (&a)[4], uint32 b0, uint32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add(bfloat16, float (&d)[4], const uint32 (&a)[4], uint32 b0, uint32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Blocks of a cluster wait for one another, and see what the others wrote.
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Four floats of the shared memory of a block of the cluster.
__device__ __forceinline__ void load_from_block(float* into, uint32 address, uint32 block) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
                 : "=f"(into[0]), "=f"(into[1]), "=f"(into[2]), "=f"(into[3])
                 : "r"(address), "r"(block)
                 : "memory");
}

// Where the 16 bytes of a row stand that are the `chunk`th of `CHUNKS`: eight rows, read at once, lie in different banks.
template <int CHUNKS>
__device__ __forceinline__ uint32 spread(uint32 row, uint32 chunk) {
    constexpr uint32 ROWS = CHUNKS < 8 ? 8 / CHUNKS : 1, MASK = CHUNKS < 8 ? CHUNKS - 1 : 7;
    return (row * CHUNKS + (chunk ^ (row / ROWS & MASK))) * 16;
}

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

// A block gives BM x BN of the result, in WARPS_M x WARPS_N warps; SPLIT blocks of a cluster share its sums. The operands
// lie transposed where TA and TB say so.
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int STAGES_, int SPLIT_, bool TA_, bool TB_>
struct Tile {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, STAGES = STAGES_, SPLIT = SPLIT_;
    static constexpr bool TA = TA_, TB = TB_;
    static constexpr int WARPS_N = WARPS_N_, THREADS = 32 * WARPS_M_ * WARPS_N_;
    // Of the result, for a warp.
    static constexpr int WM = BM / WARPS_M_, WN = BN / WARPS_N_;
    // How the operands lie in shared memory.
    static constexpr int A_ROWS = TA ? BK : BM, A_COLUMNS = TA ? BM : BK;
    static constexpr int B_ROWS = TB ? BN : BK, B_COLUMNS = TB ? BK : BN;
    static constexpr int A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BK * BN * 2;
    // Floats from one row of the sums to the next: two rows and more in different banks.
    static constexpr int PITCH = BN + 8;
};

// Multiplies what lies in one stage.
template <typename L, typename T>
__device__ __forceinline__ void multiply_stage(float (&sums)[L::WM / 16][L::WN / 8][4], uint32 a, uint32 b) {
    const uint32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32 row = warp / L::WARPS_N * L::WM, column = warp % L::WARPS_N * L::WN;
    #pragma unroll
    for (uint32 k = 0; k < L::BK; k += 16) {
        uint32 left[L::WM / 16][4], right[L::WN / 16][4];
        #pragma unroll
        for (uint32 i = 0; i < L::WM / 16; i++) {
            const uint32 first = row + i * 16;
            if (L::TA) {
                const uint32 r = k + lane % 8 + lane / 16 * 8, chunk = first / 8 + lane / 8 % 2;
                load_transposed(left[i], a + spread<L::A_COLUMNS / 8>(r, chunk));
            } else {
                load_matrices(left[i], a + spread<L::A_COLUMNS / 8>(first + lane % 16, k / 8 + lane / 16));
            }
        }
        #pragma unroll
        for (uint32 j = 0; j < L::WN / 16; j++) {
            const uint32 first = column + j * 16;
            if (L::TB) {
                const uint32 r = first + lane % 8 + lane / 16 * 8, chunk = k / 8 + lane / 8 % 2;
                load_matrices(right[j], b + spread<L::B_COLUMNS / 8>(r, chunk));
            } else {
                load_transposed(right[j], b + spread<L::B_COLUMNS / 8>(k + lane % 16, first / 8 + lane / 16));
            }
        }
        #pragma unroll
        for (uint32 i = 0; i < L::WM / 16; i++) {
            #pragma unroll
            for (uint32 j = 0; j < L::WN / 8; j++) {
                multiply_add(T(), sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

// The sums of a block to its shared memory, row by row.
template <typename L>
__device__ __forceinline__ void lay_out(float* memory, const float (&sums)[L::WM / 16][L::WN / 8][4]) {
    const uint32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32 row = warp / L::WARPS_N * L::WM + lane / 4, column = warp % L::WARPS_N * L::WN + lane % 4 * 2;
    #pragma unroll
    for (uint32 i = 0; i < L::WM / 16; i++) {
        #pragma unroll
        for (uint32 j = 0; j < L::WN / 8; j++) {
            #pragma unroll
            for (uint32 half = 0; half < 2; half++) {
                Pack<float, 2> pair;
                pair.item[0] = sums[i][j][half * 2];
                pair.item[1] = sums[i][j][half * 2 + 1];
                *(Pack<float, 2>*)(memory + (row + i * 16 + half * 8) * L::PITCH + column + j * 8) = pair;
            }
        }
    }
}

// Eight sums, added over the blocks of a cluster in their order.
template <typename L>
__device__ __forceinline__ void collect(float (&sums)[8], const float* memory) {
    if constexpr (L::SPLIT == 1) {
        *(Pack<float, 4>*)&sums[0] = *(const Pack<float, 4>*)memory;
        *(Pack<float, 4>*)&sums[4] = *(const Pack<float, 4>*)(memory + 4);
    } else {
        #pragma unroll
        for (int32 k = 0; k < 8; k++) sums[k] = 0.0f;
        #pragma unroll
        for (uint32 block = 0; block < L::SPLIT; block++) {
            float part[8];
            load_from_block(&part[0], shared_address(memory), block);
            load_from_block(&part[4], shared_address(memory + 4), block);
            #pragma unroll
            for (int32 k = 0; k < 8; k++) sums[k] += part[k];
        }
    }
}

template <typename L, typename T, typename Y, typename Tail>
__device__ __forceinline__ void gemm(Y* y, const T* a, const T* b, const Tail& tail, const Product& s) {
    extern __shared__ __align__(128) uint8 memory[];
    const uint32 down = (s.m + L::BM - 1) / L::BM, across = (s.n + L::BN - 1) / L::BN;
    const uint32 batch = blockIdx.x / (down * across), tile = blockIdx.x % (down * across);
    // Eight rows of tiles go through the columns together: what they read of `b` stays in the cache.
    const uint32 first = tile / (8 * across) * 8, high = min(down - first, 8u), within = tile % (8 * across);
    const int32 row = (first + within % high) * L::BM, column = within / high * L::BN;
    const int32 a_pitch = L::TA ? s.left[1] : s.left[0], b_pitch = L::TB ? s.right[1] : s.right[0];
    a += place(s.batch, s.left_steps, batch) + (L::TA ? (uint64)row : (uint64)row * a_pitch);
    b += place(s.batch, s.right_steps, batch) + (L::TB ? (uint64)column * b_pitch : (uint64)column);
    const bool a_wide = (uint64)a % 16 == 0 && a_pitch % 8 == 0, b_wide = (uint64)b % 16 == 0 && b_pitch % 8 == 0;
    const int32 depths = (s.k + L::BK - 1) / L::BK, share = (depths + L::SPLIT - 1) / L::SPLIT;
    const int32 start = blockIdx.z * share, end = min(start + share, depths);
    const uint32 shared = shared_address(memory);
    const auto load = [&](int32 depth) {
        const int32 k = depth * L::BK, stage = (depth - start) % L::STAGES * L::STAGE_BYTES;
        const int32 rows = s.m - row, columns = s.n - column, left = s.k - k;
        fetch<L::A_ROWS, L::A_COLUMNS, L::THREADS>(shared + stage, memory + stage, a + (L::TA ? (uint64)k * a_pitch : (uint64)k),
                                                   a_pitch, L::TA ? left : rows, L::TA ? rows : left, a_wide);
        fetch<L::B_ROWS, L::B_COLUMNS, L::THREADS>(shared + stage + L::A_BYTES, memory + stage + L::A_BYTES,
                                                   b + (L::TB ? (uint64)k : (uint64)k * b_pitch), b_pitch,
                                                   L::TB ? columns : left, L::TB ? left : columns, b_wide);
    };
    for (int32 ahead = 0; ahead < L::STAGES - 1; ahead++) {
        if (start + ahead < end) load(start + ahead);
        copies_commit();
    }
    float sums[L::WM / 16][L::WN / 8][4] = {};
    for (int32 depth = start; depth < end; depth++) {
        copies_wait<L::STAGES - 2>();
        __syncthreads();
        if (depth + L::STAGES - 1 < end) load(depth + L::STAGES - 1);
        copies_commit();
        const uint32 stage = shared + (depth - start) % L::STAGES * L::STAGE_BYTES;
        multiply_stage<L, T>(sums, stage, stage + L::A_BYTES);
    }
    copies_wait<0>();
    __syncthreads();
    float* const laid = (float*)memory;
    lay_out<L>(laid, sums);
    if (L::SPLIT > 1) cluster_wait();
    else __syncthreads();
    const bool wide = s.n % 8 == 0 && (uint64)y % sizeof(Pack<Y, 8>) == 0 && tail.wide();
    for (uint32 v = blockIdx.z * L::THREADS + threadIdx.x; v < L::BM * L::BN / 8; v += L::THREADS * L::SPLIT) {
        const int32 r = v / (L::BN / 8), c = v % (L::BN / 8) * 8;
        if (row + r >= s.m || column + c >= s.n) continue;
        float eight[8];
        collect<L>(eight, laid + r * L::PITCH + c);
        const uint64 at = ((uint64)batch * s.m + row + r) * s.n + column + c;
        if (wide) {
            *(Pack<Y, 8>*)(y + at) = tail.pack(eight, at, column + c);
        } else {
            for (int32 k = 0; k < 8 && column + c + k < s.n; k++) y[at + k] = tail.one(eight[k], at + k, column + c + k);
        }
    }
    // No block leaves while others read its memory.
    if (L::SPLIT > 1) cluster_wait();
}
