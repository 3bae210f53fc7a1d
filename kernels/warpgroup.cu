// Matrix products on Hopper: the copy engine brings tiles to shared memory (PTX ISA, "cp.async.bulk.tensor"), warpgroups multiply
// them from there. Terms have 16 bits: floats, summed in float, or pairs of neighbours of 8 bits. Behind `groups.cuh` and
// `copies.cuh`.

struct Share {
    int32 m, n, k, batches;
    // Whether each operand has a matrix for each batch, or one for all.
    int32 left_moves, right_moves;
    // How many products share the left operand.
    int32 products;
    // From one row to the next, results, and what the tail reads for each of them.
    int32 pitch, operand_pitch;
};

// A block has two warpgroups, each with the sums of 64 rows and COLUMNS columns: of the same tile, or, where they ALTERNATE, of
// a tile each, so that one multiplies while the other one writes its results. TURNED is for right operands with a row for each
// column of the result. WIDTH is how many bytes a number has of what is laid out as rows: a result, or what the tail reads. A
// step has LINES times LINE bytes of each row, and so many BLOCKS are on a processor at once. Where the right operand is the same for
// all tiles it may be brought once: STAYING bytes.
template <int COLUMNS_, int STAGES_, bool ALTERNATE_, bool TURNED_, int WIDTH_, int LINE_ = 128, int BLOCKS_ = 1, int LINES_ = 1,
          int STAYING_ = 0>
struct Shape {
    static constexpr int COLUMNS = COLUMNS_, STAGES = STAGES_, BLOCKS = BLOCKS_, LINES = LINES_;
    // Terms of a line, and of a step.
    static constexpr int ALONG = LINE_ / 2, DEPTH = LINES * ALONG;
    static constexpr bool ALTERNATE = ALTERNATE_, TURNED = TURNED_;
    // Warpgroups of a block, and those that share a tile.
    static constexpr int GROUPS = 2, SHARERS = ALTERNATE ? 1 : GROUPS, GROUP_ROWS = 64, ROWS = GROUP_ROWS * SHARERS;
    // Threads that multiply. Of the others one fetches: a warpgroup that lends those its registers, or, where several blocks share a
    // processor, a warp.
    static constexpr int THREADS = 128 * GROUPS;
    static constexpr bool LENDS = BLOCKS == 1;
    // The copy engine and the instructions agree on rows whose 16-byte parts are swapped in patterns of 8 rows.
    static constexpr int LINE = LINE_, PATTERN = 8 * LINE;
    // All rows of a line lie together, and behind them those of the next one.
    static constexpr int LEFT_LINE = ROWS * LINE, RIGHT_LINE = COLUMNS * LINE;
    static constexpr int STAYING = STAYING_, LEFT_BYTES = LINES * LEFT_LINE;
    static constexpr int STAGE_BYTES = LEFT_BYTES + (STAYING ? 0 : LINES * RIGHT_LINE);
    // What stays lies behind all stages, and has a barrier behind theirs.
    static constexpr int STAGES_BYTES = STAGES * STAGE_BYTES, BARRIERS = STAGES + (STAYING ? 1 : 0);
    // Of a right operand that is not turned, 64 columns lie beside each other, in as many rows as there are sums.
    static constexpr int STRIP = 64, STRIP_BYTES = DEPTH * LINE;
    // Results of a warp on their way to memory: 16 rows, so far apart that eight of them lie in all banks.
    static constexpr int PITCH = COLUMNS * WIDTH_ + 16, LAID_BYTES = 16 * PITCH;
    // Behind them what the tail reads for each column, of so many operands. Sums take that place one part after another.
    static constexpr int MOST_COLUMNS = 3, USED_BYTES = LAID_BYTES + MOST_COLUMNS * COLUMNS * 2;
    static constexpr int PART = 32, PART_PITCH = PART + 8, PART_BYTES = 16 * PART_PITCH * 4;
    static constexpr int WARP_BYTES = USED_BYTES > PART_BYTES ? USED_BYTES : PART_BYTES;
};

// What tiles begin at multiples of, whatever their rows.
constexpr int LONGEST_PATTERN = 8 * 128;

// Sums in the unit of the result, one or two neighbours: those of floats are in it.
template <typename Tail, typename Sums>
__device__ __forceinline__ Sums in_unit(const Tail&, const Sums& sums, int32) {
    return sums;
}

// Warpgroups that alternate take turns: one waits until the other one has passed the turn on.
template <int THREADS>
__device__ __forceinline__ void turn_wait(uint32 group) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(THREADS) : "memory");
}
template <int THREADS>
__device__ __forceinline__ void turn_pass(uint32 group) {
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + group), "n"(THREADS) : "memory");
}

// Which tile of which product.
template <typename L>
struct Tile {
    int32 product, batch, row, column;

    __device__ __forceinline__ Tile(const Share& s, uint32 number) {
        const uint32 down = (s.m + L::ROWS - 1) / L::ROWS, across = (s.n + L::COLUMNS - 1) / L::COLUMNS;
        row = number % down * L::ROWS;
        column = number / down % across * L::COLUMNS;
        batch = number / (down * across) % s.batches;
        product = number / (down * across) / s.batches;
    }

    __device__ __forceinline__ bool is_there(const Share& s) const { return product < s.products; }

    // The one that is so many behind: divisions take longer than a few columns.
    __device__ __forceinline__ void advance(const Share& s, uint32 tiles) {
        constexpr uint32 FEW = 4;
        const uint32 down = ((uint32)s.m + L::ROWS - 1) / L::ROWS, height = down * L::ROWS;
        if (tiles > FEW * down) {
            const uint32 across = (s.n + L::COLUMNS - 1) / L::COLUMNS, matrix = product * s.batches + batch;
            *this = Tile(s, (matrix * across + column / L::COLUMNS) * down + row / L::ROWS + tiles);
            return;
        }
        row += tiles * L::ROWS;
        while ((uint32)row >= height && is_there(s)) {
            row -= height;
            column += L::COLUMNS;
            if (column < s.n) continue;
            column = 0;
            if (++batch < s.batches) continue;
            batch = 0;
            product++;
        }
    }
};

// The left operand as rows of matrices.
struct LeftRows {
    const TensorMap* map;
    int32 moves;

    // Those of a tile, step by step.
    struct Steps {
        const TensorMap* map;
        int32 row, batch, k = 0;

        __device__ __forceinline__ void bring(uint32 to, int32 depth, uint32 barrier) {
            ::bring(to, map, k, row, batch, barrier);
            k += depth;
        }
    };

    __device__ __forceinline__ void expect() const { expect_map(map); }
    template <typename L>
    __device__ __forceinline__ Steps of(const Tile<L>& tile) const {
        return Steps{map, tile.row, tile.batch * moves};
    }
};

// Brings what a step needs of the right operand.
template <typename L>
__device__ __forceinline__ void bring_right(uint32 to, const TensorMap* map, const Tile<L>& tile, int32 k, int32 batch,
                                            uint32 barrier) {
    if constexpr (L::TURNED) {
        bring(to, map, k, tile.column, batch, barrier);
    } else {
        #pragma unroll
        for (int32 strip = 0; strip < L::COLUMNS / L::STRIP; strip++) {
            bring(to + strip * L::STRIP_BYTES, map, tile.column + strip * L::STRIP, k, batch, barrier);
        }
    }
}

// A tile needs its operands alone.
struct NothingBeside {
    __device__ __forceinline__ void init() const {}
    __device__ __forceinline__ NothingBeside at(uint32) const { return *this; }
    template <typename L>
    __device__ __forceinline__ void bring(const Tile<L>&) {}
};

// Brings a step of the right operand, line by line.
template <typename L, typename Right>
__device__ __forceinline__ void bring_lines(const Right& right, uint32 to, const Tile<L>& tile, int32 k, uint32 barrier) {
    #pragma unroll
    for (int32 line = 0; line < L::LINES; line++) right(to + line * L::RIGHT_LINE, tile, k + line * L::ALONG, barrier);
}

// One thread fetches all tiles, as stages become empty. HELD says that nobody writes the right operands any more: what the first
// tile needs of its own comes before the kernel in front has ended. `beside` brings what else a tile needs.
template <typename L, bool HELD, typename Left, typename Right, typename Beside>
__device__ __forceinline__ void fetch_all(const Share& s, const Left& left, const Right& right, Beside& beside, uint32 memory,
                                          uint32 full, uint32 empty) {
    Tile<L> tile(s, blockIdx.x);
    int32 early = 0;
    if constexpr (L::STAYING > 0) {
        static_assert(HELD, "nobody writes what stays");
        barrier_expect(full + L::STAGES * 8, L::STAYING);
        for (int32 k = 0; k < s.k; k += L::ALONG) right(memory + L::STAGES_BYTES + k * L::COLUMNS * 2, tile, k, full + L::STAGES * 8);
    } else if (HELD && tile.is_there(s)) {
        for (int32 k = 0; k < s.k && early < L::STAGES; k += L::DEPTH, early++) {
            barrier_expect(full + early * 8, L::STAGE_BYTES);
            bring_lines(right, memory + early * L::STAGE_BYTES + L::LEFT_BYTES, tile, k, full + early * 8);
        }
    }
    wait_for_previous();
    Turn<L::STAGES> turn;
    for (; tile.is_there(s); tile.advance(s, gridDim.x)) {
        auto steps = left.of(tile);
        beside.bring(tile);
        for (int32 k = 0; k < s.k; k += L::DEPTH) {
            const uint32 stage = memory + turn.stage * L::STAGE_BYTES, barrier = full + turn.stage * 8;
            if (early-- <= 0) {
                barrier_wait(empty + turn.stage * 8, turn.parity ^ 1);
                barrier_expect(barrier, L::STAGE_BYTES);
                if constexpr (!L::STAYING) bring_lines(right, stage + L::LEFT_BYTES, tile, k, barrier);
            }
            #pragma unroll
            for (int32 line = 0; line < L::LINES; line++) steps.bring(stage + line * L::LEFT_LINE, L::ALONG, barrier);
            turn.next();
        }
    }
}

// The sums of a tile for 64 rows. What is called halfway has the time of the other half.
template <typename L, typename T, typename Sum, typename Halfway>
__device__ __forceinline__ void sum_up(Sum (&sums)[L::COLUMNS / 2], int32 terms, uint32 memory, uint32 full, uint32 empty,
                                       Turn<L::STAGES>& turn, const Halfway& halfway) {
    const uint32 group = threadIdx.x / 128, rows = group % L::SHARERS * L::GROUP_ROWS * L::LINE;
    const int32 middle = terms / L::DEPTH / 2 * L::DEPTH;
    uint32 before = 0;
    const auto release = [&](uint32 stage) {
        if (threadIdx.x % 128 == 0) barrier_arrive(empty + stage * 8);
    };
    if (L::STAYING) barrier_wait(full + L::STAGES * 8, 0);
    // Who is not at the last round of a stage's barrier can't tell which one it waits for.
    if (L::ALTERNATE) turn_wait<L::THREADS>(group);
    for (int32 k = 0; k < terms; k += L::DEPTH) {
        const uint32 stage = memory + turn.stage * L::STAGE_BYTES, left = stage + rows;
        const uint32 right = L::STAYING ? memory + L::STAGES_BYTES + k * L::COLUMNS * 2 : stage + L::LEFT_BYTES;
        barrier_wait(full + turn.stage * 8, turn.parity);
        products_begin();
        #pragma unroll
        for (int32 i = 0; i < L::DEPTH / 16; i++) {
            const int32 line = i * 16 / L::ALONG, along = i * 32 % L::LINE;
            const uint64 a = described(left + line * L::LEFT_LINE + along, 16, L::PATTERN);
            const uint64 b = L::TURNED ? described(right + line * L::RIGHT_LINE + along, 16, L::PATTERN)
                                       : described(right + i * 16 * L::LINE, L::STRIP_BYTES, L::PATTERN);
            multiply_add<L::TURNED>(T(), sums, a, b, k > 0 || i > 0);
        }
        products_commit();
        // While these go on, those before them are done, and nobody reads their stage any more.
        products_wait<1>();
        if (k > 0) release(before);
        if (k == middle) halfway();
        before = turn.stage;
        turn.next();
    }
    if (L::ALTERNATE) turn_pass<L::THREADS>(1 - group);
    products_wait<0>();
    release(before);
}

// Four 8 x 8 matrices of 16-bit numbers to rows at the addresses of eight lanes each.
__device__ __forceinline__ void store_matrices(uint32 row, const uint32 (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]), "r"(from[1]),
                 "r"(from[2]), "r"(from[3])
                 : "memory");
}
// A multiple of 16 bytes to shared memory.
__device__ __forceinline__ void bring_row(uint32 to, const void* from, uint32 bytes, uint32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}

// The 16 rows of a tile that are a warp's, and where they lie in its shared memory.
template <typename L>
struct Rows {
    int32 row, column, rows, columns;
    // Where the first number lies of results, and of operands with a number for each.
    uint64 first, operand;
    uint8* laid;
    uint32 shared, arrived;

    __device__ __forceinline__ Rows(const Share& s, const Tile<L>& tile, uint8* memory, uint32 barrier)
        : laid(memory), shared(shared_address(memory)), arrived(barrier) {
        row = tile.row + threadIdx.x / 32 % (4 * L::SHARERS) * 16;
        column = tile.column;
        rows = min(s.m - row, 16);
        columns = min(s.n - column, L::COLUMNS);
        first = ((uint64)tile.batch * s.m + row) * s.pitch + column;
        operand = ((uint64)tile.batch * s.m + row) * s.operand_pitch + column;
    }
};

// Brings what the tail reads: an operand with a number for each result to where the results will lie, those with one for each
// column behind.
template <typename L, typename Tail>
__device__ __forceinline__ void bring_operands(const Rows<L>& rows, const Tail& tail, int32 pitch) {
    const int32 lane = threadIdx.x % 32, bytes = rows.columns * 2, staged = rows.columns * Tail::STAGED;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (lane == 0) barrier_expect(rows.arrived, max(rows.rows, 0) * staged + Tail::COLUMNS * bytes);
    __syncwarp();
    if (Tail::STAGED && lane < rows.rows) {
        const uint8* const from = tail.staged() + (rows.operand + (uint64)lane * pitch) * Tail::STAGED;
        bring_row(rows.shared + lane * L::PITCH, from, staged, rows.arrived);
    }
    if (lane < Tail::COLUMNS) {
        const uint32 to = rows.shared + L::LAID_BYTES + lane * L::COLUMNS * 2;
        bring_row(to, tail.column(lane) + rows.column, bytes, rows.arrived);
    }
}

// Rows of results to where they belong: a row at once, or several.
template <typename L, typename Y>
__device__ __forceinline__ void copy_rows(Y* y, const Share& s, const Rows<L>& rows) {
    constexpr int EACH = 16 / sizeof(Y), PACKS = L::COLUMNS / EACH;
    typedef Pack<Y, EACH> Several;
    const int32 lane = threadIdx.x % 32;
    #pragma unroll 4
    for (int32 i = 0; i < 16 * PACKS / 32; i++) {
        const int32 row = (i * 32 + lane) / PACKS, column = (i * 32 + lane) % PACKS * EACH;
        const Several pack = *(const Several*)(rows.laid + row * L::PITCH + column * sizeof(Y));
        if (row < rows.rows && column < rows.columns) *(Several*)(y + rows.first + (uint64)row * s.pitch + column) = pack;
    }
}

// The same where rows begin anywhere: eights that lie on a multiple of 16 bytes, and what is before and behind them.
template <typename L, typename Y>
__device__ __forceinline__ void copy_uneven_rows(Y* y, const Share& s, const Rows<L>& rows) {
    const int32 lane = threadIdx.x % 32;
    #pragma unroll 2
    for (int32 row = 0; row < rows.rows; row++) {
        Y* const to = y + rows.first + (uint64)row * s.pitch;
        const uint8* const from = rows.laid + row * L::PITCH;
        const int32 head = min((int32)(0u - (uint32)((uint64)to / 2) & 7), rows.columns), eights = (rows.columns - head) / 8;
        const int32 column = head + lane * 8, edge = lane < head ? lane : eights * 8 + lane;
        if (lane < eights) {
            uint32 words[5];
            #pragma unroll
            for (int32 i = 0; i < 5; i++) words[i] = ((const uint32*)from)[column / 2 + i];
            #pragma unroll
            for (int32 i = 0; i < 4; i++) words[i] = __funnelshift_r(words[i], words[i + 1], column % 2 * 16);
            // The compiler would store part by part.
            asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + column), "r"(words[0]), "r"(words[1]),
                         "r"(words[2]), "r"(words[3])
                         : "memory");
        }
        if (edge < rows.columns) to[edge] = ((const Y*)from)[edge];
    }
}

// The sums of a warp to results of 16 or 8 bits: done while each lane has two neighbours of every eight in a row and in the one
// eight rows below, then laid out as rows. What is read for several columns is read before any of their results is written.
template <typename L, typename Y, typename Sum, typename Tail>
__device__ __forceinline__ void lay_rows(const Sum (&sums)[L::COLUMNS / 2], const Tail& tail, const Rows<L>& rows) {
    // Results of 8 bits need no other lane: many are under way at once.
    constexpr int32 MANY = sizeof(Y) == 1 ? 64 : 16, TWOS = MANY / 4;
    const int32 lane = threadIdx.x % 32;
    uint8* const own = rows.laid + lane / 4 * L::PITCH;
    const uint32 to = rows.shared + lane % 16 * L::PITCH + lane / 16 * 16;
    #pragma unroll
    for (int32 j = 0; j < L::COLUMNS; j += MANY) {
        uint32 read[TWOS][Tail::COLUMNS + 1];
        uint32 results[TWOS];
        #pragma unroll
        for (int32 i = 0; i < TWOS; i++) {
            const int32 column = j + i / 2 * 8, below = i % 2 * 8, pair = column + lane % 4 * 2;
            #pragma unroll
            for (int32 c = 0; c < Tail::COLUMNS; c++) {
                read[i][c] = *(const uint32*)(rows.laid + L::LAID_BYTES + (c * L::COLUMNS + column) * 2 + lane % 4 * 4);
            }
            const uint8* const staged = own + below * L::PITCH + pair * Tail::STAGED;
            if (Tail::STAGED == 2) read[i][Tail::COLUMNS] = *(const uint32*)staged;
            if (Tail::STAGED == 1) read[i][Tail::COLUMNS] = *(const uint16*)staged;
        }
        #pragma unroll
        for (int32 i = 0; i < TWOS; i++) {
            const int32 column = j + i / 2 * 8, at = column / 2 + i % 2 * 2, pair = column + lane % 4 * 2;
            const Pack<float, 2> numbers = in_unit(tail, Pack<Sum, 2>{{sums[at], sums[at + 1]}}, rows.column + pair);
            const Pack<Y, 2> two = tail.two(numbers.item, read[i]);
            if constexpr (sizeof(Y) == 2) results[i] = *(const uint32*)&two;
            else results[i] = *(const uint16*)&two;
        }
        // Wider operands lie where other lanes write.
        if (Tail::STAGED > 1 || (Tail::STAGED && sizeof(Y) > 1)) __syncwarp();
        if constexpr (sizeof(Y) == 2) {
            store_matrices(to + j * 2, results);
        } else {
            #pragma unroll
            for (int32 i = 0; i < TWOS; i++) {
                *(uint16*)(own + i % 2 * 8 * L::PITCH + j + i / 2 * 8 + lane % 4 * 2) = (uint16)results[i];
            }
        }
    }
    __syncwarp();
}

// The sums of a warp to results of any type, wherever they lie: one by one, neighbours at once.
template <typename L, typename Y, typename Sum, typename Tail>
__device__ __forceinline__ void put_each(Y* y, const Sum (&sums)[L::COLUMNS / 2], const Tail& tail, const Share& s,
                                         const Rows<L>& rows) {
    constexpr int PART = L::PART, PITCH = L::PART_PITCH;
    Sum* const laid = (Sum*)rows.laid;
    const int32 lane = threadIdx.x % 32;
    #pragma unroll
    for (int32 part = 0; part < L::COLUMNS; part += PART) {
        __syncwarp();
        #pragma unroll
        for (int32 i = 0; i < PART / 4; i++) {
            Pack<Sum, 2> pair;
            pair.item[0] = sums[part / 2 + i * 2];
            pair.item[1] = sums[part / 2 + i * 2 + 1];
            *(Pack<Sum, 2>*)(laid + (lane / 4 + i % 2 * 8) * PITCH + i / 2 * 8 + lane % 4 * 2) = pair;
        }
        __syncwarp();
        if (part + lane >= rows.columns) continue;
        #pragma unroll 4
        for (int32 r = 0; r < rows.rows; r++) {
            const uint64 own = (uint64)part + lane, at = rows.operand + (uint64)r * s.operand_pitch + own;
            const int32 column = rows.column + part + lane;
            y[rows.first + (uint64)r * s.pitch + own] = tail.one(in_unit(tail, laid[r * PITCH + lane], column), at, column);
        }
    }
}

// What two warpgroups do: each tile's sums, and then its results.
template <typename L, typename T, typename Sum, typename Y, typename Tail, typename Result, typename Tails>
__device__ __forceinline__ void multiply_all(const Share& s, const Result& result, const Tails& tails, uint8* laid, uint32 arrived,
                                             uint32 memory, uint32 full, uint32 empty) {
    const uint32 group = threadIdx.x / 128;
    Turn<L::STAGES> turn;
    uint32 next = 0, parity = 0;
    if (L::ALTERNATE && group == 1) turn_pass<L::THREADS>(0);
    for (Tile<L> tile(s, blockIdx.x); tile.is_there(s); tile.advance(s, gridDim.x)) {
        if (L::ALTERNATE && next++ % L::GROUPS != group) {
            turn.skip((s.k + L::DEPTH - 1) / L::DEPTH);
            continue;
        }
        const Rows<L> rows(s, tile, laid, arrived);
        const Tail tail = tails(tile.product);
        Y* const y = result(tile.product);
        const bool grained = s.n % Tail::GRAIN == 0 && s.pitch % Tail::GRAIN == 0 && s.operand_pitch % Tail::GRAIN == 0;
        const bool even = Tail::EVEN && grained && (uint64)y % 16 == 0 && tail.even();
        const auto halfway = [&]() {
            if (even) bring_operands<L>(rows, tail, s.operand_pitch);
        };
        Sum sums[L::COLUMNS / 2] = {};
        sum_up<L, T>(sums, s.k, memory, full, empty, turn, halfway);
        if constexpr (Tail::EVEN) {
            if (even) {
                barrier_wait(arrived, parity);
                parity ^= 1;
                lay_rows<L, Y>(sums, tail, rows);
                copy_rows<L>(y, s, rows);
                __syncwarp();
                continue;
            }
            if constexpr (Tail::COLUMNS == 0 && !Tail::STAGED && sizeof(Y) == 2) {
                lay_rows<L, Y>(sums, tail, rows);
                copy_uneven_rows<L>(y, s, rows);
                __syncwarp();
                continue;
            }
        }
        put_each<L>(y, sums, tail, s, rows);
    }
}

// A block: one thread fetches, `consume` multiplies. `left` and `right` say what they bring of a tile; the latter waits for nobody if
// HELD. `beside` is made of where memory begins behind tiles. `consume` is called by all threads that multiply, with where tiles lie,
// the barriers that say when they are there and when they are not needed any more, and the memory behind them.
template <typename L, bool HELD, typename Left, typename Right, typename Beside, typename Consume>
__device__ __forceinline__ void produce_and_consume(const Left& left, const Right& right, const Beside& beside, const Share& s,
                                                    const Consume& consume) {
    extern __shared__ uint8 dynamic[];
    __shared__ __align__(8) uint64 full[L::BARRIERS], empty[L::STAGES];
    const uint32 filled = shared_address(full), emptied = shared_address(empty);
    const uint32 skipped = (0u - shared_address(dynamic)) % LONGEST_PATTERN, memory = shared_address(dynamic) + skipped;
    if (threadIdx.x == L::THREADS) {
        left.expect();
        beside.init();
        for (int32 stage = 0; stage < L::STAGES; stage++) {
            barrier_init(filled + stage * 8, 1);
            barrier_init(emptied + stage * 8, L::SHARERS);
        }
        if (L::STAYING) barrier_init(filled + L::STAGES * 8, 1);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= L::THREADS) {
        if constexpr (L::LENDS) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        auto fetched = beside.at(memory + L::STAGES_BYTES + L::STAYING);
        if (threadIdx.x == L::THREADS) fetch_all<L, HELD>(s, left, right, fetched, memory, filled, emptied);
    } else {
        if constexpr (L::LENDS) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        after_previous();
        consume(memory, filled, emptied, dynamic + skipped + L::STAGES_BYTES + L::STAYING);
    }
}

// `result`, `right` and `tails` give those of a product by its number.
template <typename L, bool HELD, typename T, typename Sum, typename Y, typename Tail, typename Result, typename Left, typename Right,
          typename Tails>
__device__ __forceinline__ void warpgroups(const Result& result, const Left& left, const Right& right, const Tails& tails,
                                           const Share& s) {
    __shared__ __align__(8) uint64 arrived[L::THREADS / 32];
    if (threadIdx.x == L::THREADS) {
        for (int32 product = 0; product < s.products; product++) expect_map(right(product));
        for (int32 warp = 0; warp < L::THREADS / 32; warp++) barrier_init(shared_address(arrived + warp), 1);
    }
    const auto bring = [&](uint32 to, const Tile<L>& tile, int32 k, uint32 barrier) {
        bring_right<L>(to, right(tile.product), tile, k, tile.batch * s.right_moves, barrier);
    };
    produce_and_consume<L, HELD>(left, bring, NothingBeside(), s,
                                 [&](uint32 memory, uint32 full, uint32 empty, uint8* behind) {
                                     const uint32 warp = threadIdx.x / 32;
                                     multiply_all<L, T, Sum, Y, Tail>(s, result, tails, behind + warp * L::WARP_BYTES,
                                                                      shared_address(arrived + warp), memory, full, empty);
                                 });
}
