// Convolutions and products of 8 bits with results of 8 bits on Hopper, as implicit GEMM: the copy engine brings pixels as an im2col
// matrix has them, or rows, and weights so that each lane has 16 neighbouring channels of a result. Behind `groups.cuh`,
// `quantized.cuh`, `linear.cuh`, `pairs.cuh`, `warpgroup.cu`, `windows.cuh`, `quantized_rows.cu` and a `Tail`.

// Of so many columns each lane of a row of lanes has EACH neighbours: results of 8 bits that fill WORDS.
template <typename L>
struct Spread {
    static constexpr int32 COLUMNS = L::COLUMNS < 64 ? L::COLUMNS : 64, EACH = COLUMNS / 4, WORDS = EACH / 4;
    typedef Pack<uint32, WORDS> Words;
};

// Weights as the copy engine sees them: of those of a `Spread` the neighbours of each lane, of which the instruction takes two at a time
// in turn.
template <typename L>
struct SpreadWeights {
    const TensorMap* map;

    __device__ __forceinline__ void operator()(uint32 to, const Tile<L>& tile, int32 k, uint32 barrier) const {
        bring(to, map, k, 0, 0, 0, tile.column / Spread<L>::COLUMNS, barrier);
    }
};

// All pixels of the result begin with the same numbers.
struct Alike {
    struct Starts {
        int4 all;

        __device__ __forceinline__ Starts(const Channels&, const Alike&, int32) {}
        __device__ __forceinline__ void read(const Channels& lists, int32 channel) {
            all = __ldg((const int4*)(lists.starts() + channel));
        }
        __device__ __forceinline__ int4 of(int32) const { return all; }
    };
};

// Windows see beyond the image, where the copy engine puts zeros and not the zero point: the taps that do so count as if they were not
// there. Which ones they are depends on the row and on the column of a pixel. There is a list of starts for each such case; behind the
// lists stands for each row, and then for each column, a part of how far its list is from the first one.
struct Borders {
    int32 behind;
    Divisor height, width;

    __device__ __forceinline__ const int32* list(const Channels& lists, int32 pixel) const {
        const int32* const parts = lists.starts() + behind;
        uint32 rest = pixel;
        const uint32 column = width.take(rest), row = height.take(rest);
        return lists.starts() + __ldg(parts + row) + __ldg(parts + height.size + column);
    }

    // Those of two rows, which are read when they are needed: ahead they would take registers.
    struct Starts {
        const int32* lists[2];
        int32 channel;

        __device__ __forceinline__ Starts(const Channels& all, const Borders& borders, int32 row)
            : lists{borders.list(all, row), borders.list(all, row + 8)} {}
        __device__ __forceinline__ void read(const Channels&, int32 first) { channel = first; }
        __device__ __forceinline__ int4 of(int32 half) const { return __ldg((const int4*)(lists[half] + channel)); }
    };
};

// What four neighbouring channels are multiplied by, what is added then, and what they begin with (STARTS). Where numbers are not those
// of layers one by one anyway, it is done at once (FUSED).
template <bool STARTS, bool FUSED, typename Edges>
struct Units {
    float4 scales, shifts;
    typename Edges::Starts starts;

    __device__ __forceinline__ Units(const Channels& lists, const Edges& edges, int32 row) : starts(lists, edges, row) {}
    __device__ __forceinline__ void read(const Channels& lists, int32 channel) {
        scales = __ldg((const float4*)(lists.scales + channel));
        shifts = __ldg((const float4*)(lists.shifts() + channel));
        if (STARTS) starts.read(lists, channel);
    }
    __device__ __forceinline__ int4 begin(int32 half) const { return STARTS ? starts.of(half) : int4{}; }
    template <typename Sum>
    __device__ __forceinline__ float of(Sum sum, const int4& begin, int32 at) const {
        const int32 start = (&begin.x)[at];
        const float scale = (&scales.x)[at], shift = (&shifts.x)[at];
        return FUSED ? __fmaf_rn((float)(sum + (Sum)start), scale, shift) : scaled(sum, start, scale, shift);
    }
};

// Anything else: a `Tail`.
struct Each : Tail {
    __device__ __forceinline__ explicit Each(const Tail& tail) : Tail(tail) {}
    __device__ __forceinline__ uint32 four(const float (&numbers)[4], uint32 added) const {
        const float low[2] = {numbers[0], numbers[1]}, high[2] = {numbers[2], numbers[3]};
        const uint32 parts[2] = {added, added >> 16};
        const Pack<Y0, 2> pairs[2] = {two(low, parts), two(high, parts + 1)};
        return *(const uint16*)pairs | (uint32) * (const uint16*)(pairs + 1) << 16;
    }
};

// What is added to results, brought a tile ahead: boxes of at most 128 columns, whose 16-byte parts are swapped as those of operands.
template <typename L>
struct Residuals {
    static constexpr int SLOTS = 2, WIDTH = L::COLUMNS < 128 ? L::COLUMNS : 128, BOX_BYTES = L::ROWS * WIDTH;
    static constexpr int BOXES = L::COLUMNS / WIDTH, SLOT_BYTES = BOXES * BOX_BYTES, WARPS = L::THREADS / 32;
    const TensorMap* map;
    // Barriers of each slot: it is there, and it is not needed any more.
    uint32 full, empty;
    uint32 memory;
    Turn<SLOTS> turn;

    __device__ __forceinline__ Residuals(const TensorMap* map, uint32 full, uint32 empty)
        : map(map), full(full), empty(empty), memory(0) {}

    __device__ __forceinline__ void init() const {
        expect_map(map);
        for (int32 slot = 0; slot < SLOTS; slot++) {
            barrier_init(full + slot * 8, 1);
            barrier_init(empty + slot * 8, WARPS);
        }
    }
    __device__ __forceinline__ Residuals at(uint32 begin) const {
        Residuals own = *this;
        own.memory = begin;
        return own;
    }
    __device__ __forceinline__ void bring(const Tile<L>& tile) {
        const uint32 barrier = full + turn.stage * 8, to = memory + turn.stage * SLOT_BYTES;
        barrier_wait(empty + turn.stage * 8, turn.parity ^ 1);
        barrier_expect(barrier, SLOT_BYTES);
        #pragma unroll
        for (int32 box = 0; box < BOXES; box++) {
            // Columns are counted in pairs.
            ::bring(to + box * BOX_BYTES, map, (tile.column + box * WIDTH) / 2, tile.row, 0, barrier);
        }
        turn.next();
    }
    __device__ __forceinline__ void wait() const { barrier_wait(full + turn.stage * 8, turn.parity); }
    // Neighbours of a row, both within the tile.
    __device__ __forceinline__ typename Spread<L>::Words read(int32 row, int32 column) const {
        const uint32 line = memory + turn.stage * SLOT_BYTES + column / WIDTH * BOX_BYTES + row * WIDTH;
        const uint32 part = column % WIDTH / 16 ^ row / (128 / WIDTH) % (WIDTH / 16), from = line + part * 16 + column % 16;
        typename Spread<L>::Words read;
        uint32(&words)[Spread<L>::WORDS] = read.item;
        if constexpr (Spread<L>::WORDS == 4) {
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                         : "r"(from));
        } else {
            asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(from));
        }
        return read;
    }
    // The slot is read.
    __device__ __forceinline__ void release() {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + turn.stage * 8);
        turn.next();
    }
};

// Nothing is added.
template <typename L>
struct NoResiduals : NothingBeside {
    __device__ __forceinline__ NoResiduals at(uint32) const { return *this; }
    __device__ __forceinline__ void wait() const {}
    __device__ __forceinline__ typename Spread<L>::Words read(int32, int32) const { return {}; }
    __device__ __forceinline__ void release() {}
};

// The sums of a `Spread` to results, all neighbours of a row at once. `added` holds what is added to them. `units` are those of the first
// four; then of those behind.
template <typename L, typename Y, typename Sum, typename Units, typename Tail, typename Places>
__device__ __forceinline__ void write_spread(Y* y, const Share& s, const Sum* sums, const Tail& tail, const Channels& lists,
                                             const Places& places, typename Spread<L>::Words (&added)[2], Units& units,
                                             int32 row, int32 channel) {
    constexpr int32 WORDS = Spread<L>::WORDS;
    #pragma unroll
    for (int32 four = 0; four < WORDS; four++) {
        const Units own = units;
        const int32 next = four < WORDS - 1 ? channel + four * 4 + 4 : channel + Spread<L>::COLUMNS;
        units.read(lists, min(next, lists.pitch - 4));
        #pragma unroll
        for (int32 half = 0; half < 2; half++) {
            const Sum* const from = sums + four * 8 + half * 2;
            const int4 begin = own.begin(half);
            const float numbers[4] = {own.of(from[0], begin, 0), own.of(from[1], begin, 1), own.of(from[4], begin, 2),
                                      own.of(from[5], begin, 3)};
            uint32& word = added[half].item[four];
            word = tail.four(numbers, word);
        }
    }
    #pragma unroll
    for (int32 half = 0; half < 2; half++) {
        const int32 own = row + half * 8;
        if (own >= s.m || channel >= s.n) continue;
        Y* const to = y + places.pixel(own, channel) * s.pitch + places.channel(channel);
        *(typename Spread<L>::Words*)to = added[half];
    }
}

// What two warpgroups do: each tile's sums, and then its results.
template <typename L, typename T, typename Sum, typename Y, typename Units, typename Tail, typename Edges, typename Places,
          typename Residual>
__device__ __forceinline__ void multiply_spread(const Share& s, Y* y, const Tail& tail, const Channels& lists, const Edges& edges,
                                                const Places& places, Residual residuals, uint32 memory, uint32 full,
                                                uint32 empty) {
    const uint32 lane = threadIdx.x % 32;
    const int32 down = threadIdx.x / 32 * 16 + lane / 4, right = lane % 4 * Spread<L>::EACH;
    Turn<L::STAGES> turn;
    for (Tile<L> tile(s, blockIdx.x); tile.is_there(s); tile.advance(s, gridDim.x)) {
        const int32 row = tile.row + down, column = tile.column + right;
        Units units(lists, edges, row);
        units.read(lists, min(column, lists.pitch - 4));
        // The first product sets them.
        Sum sums[L::COLUMNS / 2];
        sum_up<L, T>(sums, s.k, memory, full, empty, turn, [] {});
        residuals.wait();
        #pragma unroll
        for (int32 strip = 0; strip < L::COLUMNS; strip += Spread<L>::COLUMNS) {
            typename Spread<L>::Words added[2] = {residuals.read(down, right + strip), residuals.read(down + 8, right + strip)};
            write_spread<L>(y, s, sums + strip / 2, tail, lists, places, added, units, row, column + strip);
        }
        residuals.release();
    }
}

template <typename L, typename T, typename Sum, typename Y, typename Units, typename Tail, typename Left, typename Residual,
          typename Edges, typename Places>
__device__ __forceinline__ void implicit_gemm(Y* y, const Left& left, const TensorMap* right, const Residual& residuals,
                                              const Tail& tail, const Channels& lists, const Edges& edges, const Places& places,
                                              const Share& s) {
    if (threadIdx.x == L::THREADS) expect_map(right);
    produce_and_consume<L, true>(
        left, SpreadWeights<L>{right}, residuals, s, [&](uint32 memory, uint32 full, uint32 empty, uint8* behind) {
            const auto own = residuals.at(shared_address(behind));
            multiply_spread<L, T, Sum, Y, Units>(s, y, tail, lists, edges, places, own, memory, full, empty);
        });
}
