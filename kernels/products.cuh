// What matrix products on tensor cores are made of: operands come to shared memory in steps, several of which are on their way
// at once, and the blocks of a cluster share the sums of a tile of the result. Terms have 16 bits: floats, summed in float, or
// pairs of neighbours of 8 bits, summed in int32. Behind `fragments.cuh` and `cluster.cuh`.

// Several sums, as `send` of `cluster.cuh`.
template <typename Sum>
__device__ __forceinline__ void send(const Pack<Sum, 2>& pair, uint32 address, uint32 block) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.v2.b32 [there], {%2, %3};\n}" ::"r"(address),
                 "r"(block), "r"(bits_of(pair.item[0])), "r"(bits_of(pair.item[1]))
                 : "memory");
}
template <typename Sum>
__device__ __forceinline__ void send(const Pack<Sum, 4>& four, uint32 address, uint32 block) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.v4.b32 [there], {%2, %3, %4, %5};\n}" ::"r"(address),
                 "r"(block), "r"(bits_of(four.item[0])), "r"(bits_of(four.item[1])), "r"(bits_of(four.item[2])),
                 "r"(bits_of(four.item[3]))
                 : "memory");
}

// Where the 16 bytes of a row stand that are the `chunk`th of `CHUNKS`: eight rows, read at once, lie in different banks.
template <int CHUNKS>
__device__ __forceinline__ uint32 spread(uint32 row, uint32 chunk) {
    constexpr uint32 ROWS = CHUNKS < 8 ? 8 / CHUNKS : 1, MASK = CHUNKS < 8 ? CHUNKS - 1 : 7;
    return (row * CHUNKS + (chunk ^ (row / ROWS & MASK))) * 16;
}

// A block gives BM x BN of the result, BK terms of its sums at a time, in WARPS_M x WARPS_N warps for each of WARPS_K shares
// of a step; SPLIT blocks of a cluster share the sums.
template <int BM_, int BN_, int BK_, int WARPS_M_, int WARPS_N_, int WARPS_K_, int STAGES_, int SPLIT_>
struct Block {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, STAGES = STAGES_, SPLIT = SPLIT_;
    static constexpr int WARPS = WARPS_M_ * WARPS_N_, WARPS_N = WARPS_N_, WARPS_K = WARPS_K_, THREADS = 32 * WARPS * WARPS_K;
    // Of the result, for a warp.
    static constexpr int WM = BM / WARPS_M_, WN = BN / WARPS_N_;
    // Of a step, in shared memory.
    static constexpr int A_BYTES = BM * BK * 2, B_BYTES = BK * BN * 2, STAGE_BYTES = A_BYTES + B_BYTES;
    // Floats from one row of the sums to the next: two rows and more in different banks. And those of a share of a step.
    static constexpr int PITCH = BN + 8, PART = BM * PITCH;
    // Eights of neighbours that the block writes of its tile, and those that a thread does.
    static constexpr int SHARE = BM * BN / 8 / SPLIT, EACH = (SHARE + THREADS - 1) / THREADS;
    // Where blocks of a cluster put the sums that this one writes, behind all else: SHARE eights of each.
    static constexpr int OWN_BYTES = STAGES * STAGE_BYTES > WARPS_K * PART * 4 ? STAGES * STAGE_BYTES : WARPS_K * PART * 4;

    // Where the tile of this warp begins.
    static __device__ __forceinline__ uint32 row() { return threadIdx.x / 32 % WARPS / WARPS_N * WM; }
    static __device__ __forceinline__ uint32 column() { return threadIdx.x / 32 % WARPS_N * WN; }
    // Which share of a step it takes.
    static __device__ __forceinline__ uint32 part() { return threadIdx.x / 32 / WARPS; }
};

// Sets the first steps on their way: `early(step)` asks for what is there before the kernel in front has ended, `load(step)` for
// the rest of what one needs.
template <typename L, typename Early, typename Load>
__device__ __forceinline__ void begin_steps(int32 steps, const Early& early, const Load& load) {
    if constexpr (L::SPLIT > 1) cluster_greet();
    for (int32 step = 0; step < min(L::STAGES - 1, steps); step++) early(step);
    after_previous();
    for (int32 step = 0; step < L::STAGES - 1; step++) {
        if (step < steps) load(step);
        copies_commit();
    }
}

// What a warp multiplies of a step.
template <typename L>
struct Fragments {
    static constexpr int TIMES = L::BK / 16 / L::WARPS_K;
    uint32 a[TIMES][L::WM / 16][4], b[TIMES][L::WN / 16][4];

    // `left` brings 16 rows, from those of the warp on, by 16 terms; `right` as many columns.
    template <typename Left, typename Right>
    __device__ __forceinline__ void read(const Left& left, const Right& right) {
        #pragma unroll
        for (uint32 time = 0; time < TIMES; time++) {
            const uint32 k = (time * L::WARPS_K + L::part()) * 16;
            #pragma unroll
            for (uint32 i = 0; i < L::WM / 16; i++) left(a[time][i], i, k);
            #pragma unroll
            for (uint32 j = 0; j < L::WN / 16; j++) right(b[time][j], j, k);
        }
    }

    template <typename T, typename Sum>
    __device__ __forceinline__ void multiply(T type, Sum (&sums)[L::WM / 16][L::WN / 8][4]) const {
        #pragma unroll
        for (uint32 time = 0; time < TIMES; time++) {
            #pragma unroll
            for (uint32 i = 0; i < L::WM / 16; i++) {
                #pragma unroll
                for (uint32 j = 0; j < L::WN / 8; j++) {
                    const uint32(&pair)[4] = b[time][j / 2];
                    multiply_add(type, sums[i][j], a[time][i], pair[j % 2 * 2], pair[j % 2 * 2 + 1]);
                }
            }
        }
    }
};

// Takes one step after another as they come, `read(step, fragments)` of the next one before the products of this one: nobody
// reads any more what a step takes the place of.
template <typename L, typename T, typename Sum, typename Load, typename Read>
__device__ __forceinline__ void take_steps(Sum (&sums)[L::WM / 16][L::WN / 8][4], int32 steps, const Load& load,
                                           const Read& read) {
    const auto take = [&](int32 step, Fragments<L>& into) {
        if (step >= steps) return;
        copies_wait<L::STAGES - 2>();
        __syncthreads();
        if (step + L::STAGES - 1 < steps) load(step + L::STAGES - 1);
        copies_commit();
        read(step, into);
    };
    Fragments<L> now, next;
    take(0, now);
    #pragma unroll 1
    for (int32 step = 0; step < steps; step++) {
        take(step + 1, next);
        now.multiply(T(), sums);
        now = next;
    }
    copies_wait<0>();
    __syncthreads();
}

// 16 columns of a right operand whose columns lie as rows of BK terms.
template <typename L>
__device__ __forceinline__ void load_columns(uint32 (&into)[4], uint32 from, uint32 column, uint32 k) {
    const uint32 lane = threadIdx.x % 32;
    load_matrices(into, from + spread<L::BK / 8>(column + lane % 8 + lane / 16 * 8, k / 8 + lane / 8 % 2));
}

// Takes the pairs of neighbours that a thread summed up: `take(row, column, pair)`.
template <typename L, typename Sum, typename Take>
__device__ __forceinline__ void each_pair(const Sum (&sums)[L::WM / 16][L::WN / 8][4], const Take& take) {
    const uint32 lane = threadIdx.x % 32, row = L::row() + lane / 4, column = L::column() + lane % 4 * 2;
    #pragma unroll
    for (uint32 i = 0; i < L::WM / 16; i++) {
        #pragma unroll
        for (uint32 j = 0; j < L::WN / 8; j++) {
            #pragma unroll
            for (uint32 half = 0; half < 2; half++) {
                const Pack<Sum, 2> pair = {{sums[i][j][half * 2], sums[i][j][half * 2 + 1]}};
                take(row + i * 16 + half * 8, column + j * 8, pair);
            }
        }
    }
}

// The sums of a block to its shared memory, row by row.
template <typename L, typename Sum>
__device__ __forceinline__ void lay_out(Sum* memory, const Sum (&sums)[L::WM / 16][L::WN / 8][4]) {
    memory += L::part() * L::PART;
    each_pair<L>(sums, [&](uint32 row, uint32 column, const Pack<Sum, 2>& pair) {
        *(Pack<Sum, 2>*)(memory + row * L::PITCH + column) = pair;
    });
    __syncthreads();
}

// Four neighbours, added over the shares of steps in their order.
template <typename L, typename Sum>
__device__ __forceinline__ Pack<Sum, 4> over_parts(const Sum* memory) {
    Pack<Sum, 4> sum = *(const Pack<Sum, 4>*)memory;
    #pragma unroll
    for (int32 part = 1; part < L::WARPS_K; part++) {
        const Pack<Sum, 4> other = *(const Pack<Sum, 4>*)(memory + part * L::PART);
        #pragma unroll
        for (int32 k = 0; k < 4; k++) sum.item[k] += other.item[k];
    }
    return sum;
}

// Neighbours of a row to the block that writes them, where the sums of this one are to lie in its memory.
template <typename L, typename Sum, int N>
__device__ __forceinline__ void post(const Pack<Sum, N>& sums, uint32 box, uint32 row, uint32 column) {
    const uint32 eight = row * (L::BN / 8) + column / 8;
    send(sums, box + (eight % L::SHARE * 8 + column % 8) * 4, eight / L::SHARE);
}

// The sums of a block to those of its cluster that write them.
template <typename L, typename Sum>
__device__ __forceinline__ void share_out(Sum* memory, const Sum (&sums)[L::WM / 16][L::WN / 8][4]) {
    const uint32 box = shared_address((uint8*)memory + L::OWN_BYTES) + blockIdx.z * L::SHARE * 32;
    if constexpr (L::WARPS_K == 1) {
        cluster_meet();
        each_pair<L>(sums, [&](uint32 row, uint32 column, const Pack<Sum, 2>& pair) { post<L>(pair, box, row, column); });
    } else {
        lay_out<L>(memory, sums);
        cluster_meet();
        #pragma unroll 2
        for (uint32 v = threadIdx.x; v < L::BM * L::BN / 4; v += L::THREADS) {
            const uint32 row = v / (L::BN / 4), column = v % (L::BN / 4) * 4;
            post<L>(over_parts<L>(memory + row * L::PITCH + column), box, row, column);
        }
    }
    cluster_wait();
}

// Eight sums, added over the blocks of a cluster, or the shares of steps, in their order.
template <typename L, typename Sum>
__device__ __forceinline__ void collect(Sum (&sums)[8], const Sum* memory) {
    #pragma unroll
    for (int32 half = 0; half < 2; half++) {
        Pack<Sum, 4> sum;
        if constexpr (L::SPLIT > 1) {
            sum = {};
            #pragma unroll
            for (int32 from = 0; from < L::SPLIT; from++) {
                const Pack<Sum, 4> part = *(const Pack<Sum, 4>*)(memory + from * L::SHARE * 8 + half * 4);
                #pragma unroll
                for (int32 k = 0; k < 4; k++) sum.item[k] += part.item[k];
            }
        } else {
            sum = over_parts<L>(memory + half * 4);
        }
        #pragma unroll
        for (int32 k = 0; k < 4; k++) sums[half * 4 + k] = sum.item[k];
    }
}

// What the block writes of its tile: `take(number, row, column)` for the thread's eights of neighbours, one after another.
template <typename L, int MOST = 4, typename Take>
__device__ __forceinline__ void each_eight(const Take& take) {
    // Few at once, so that what was read for each ahead of time stays in registers.
    #pragma unroll(L::EACH <= MOST ? L::EACH : 1)
    for (int32 number = 0; number < L::EACH; number++) {
        const int32 own = number * L::THREADS + threadIdx.x, v = (L::SPLIT > 1 ? blockIdx.z * L::SHARE : 0) + own;
        if (own < L::SHARE) take(number, v / (L::BN / 8), v % (L::BN / 8) * 8);
    }
}

// Ends a block: brings its sums together, and gives `take(number, row, column, memory)` where those of eight neighbours are
// for `collect`.
template <typename L, int MOST = 4, typename Sum, typename Take>
__device__ __forceinline__ void finish(Sum* memory, const Sum (&sums)[L::WM / 16][L::WN / 8][4], const Take& take) {
    if constexpr (L::SPLIT > 1) share_out<L>(memory, sums);
    else lay_out<L>(memory, sums);
    each_eight<L, MOST>([&](int32 number, int32 row, int32 column) {
        const Sum* laid = memory + row * L::PITCH + column;
        if constexpr (L::SPLIT > 1) laid = memory + L::OWN_BYTES / 4 + (number * L::THREADS + threadIdx.x) * 8;
        take(number, row, column, laid);
    });
}
