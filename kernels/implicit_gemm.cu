// Convolutions and products of 8 bits with results of 8 bits on Hopper, as implicit GEMM: the copy engine brings pixels as an im2col
// matrix has them, or rows, and weights so that each lane has 16 neighbouring channels of a result. Behind `groups.cuh`,
// `quantized.cuh`, `pairs.cuh`, `warpgroup.cu`, `quantized_rows.cu` and a `Tail`.

// How windows look at images; channels in pairs.
struct Windows {
    int32 channels, across;
    // Extents of the result, steps of the window, what lies before the first pixel, and from one tap to the next.
    int32 height, width, down, right, above, before, drop, shift;
};

// The left operand as an im2col matrix: a row for each pixel of the result, and in it the channels of each tap.
struct LeftWindows {
    const TensorMap* map;
    Windows s;

    struct Steps {
        const TensorMap* map;
        const Windows& s;
        int32 x, y, image, channel = 0, tap = 0, line = 0;

        __device__ __forceinline__ void bring(uint32 to, int32 depth, uint32 barrier) {
            bring_pixels(to, map, channel, x, y, image, (uint16)(tap * s.shift), (uint16)(line * s.drop), barrier);
            channel += depth;
            if (channel < s.channels) return;
            channel = 0;
            if (++tap < s.across) return;
            tap = 0;
            line++;
        }
    };

    __device__ __forceinline__ void expect() const { expect_map(map); }
    template <typename L>
    __device__ __forceinline__ Steps of(const Tile<L>& tile) const {
        const int32 row = tile.row / s.width, image = row / s.height;
        return Steps{map, s, tile.row % s.width * s.right - s.before, row % s.height * s.down - s.above, image};
    }
};

// Weights as the copy engine sees them: of each 64 channels 16 for each lane of a row of lanes, of which the instruction takes two at a
// time in turn.
template <typename L>
struct SpreadWeights {
    const TensorMap* map;

    __device__ __forceinline__ void operator()(uint32 to, const Tile<L>& tile, int32 k, uint32 barrier) const {
        bring(to, map, k, 0, 0, 0, tile.column / 64, barrier);
    }
};

// What four neighbouring channels are multiplied by, what is added then, and what they begin with.
template <bool STARTS>
struct Units {
    float4 scales, shifts;
    int4 starts;

    __device__ __forceinline__ Units(const Channels& lists, int32 channel) {
        scales = __ldg((const float4*)(lists.scales + channel));
        shifts = __ldg((const float4*)(lists.shifts() + channel));
        if (STARTS) starts = __ldg((const int4*)(lists.starts() + channel));
    }
    template <typename Sum>
    __device__ __forceinline__ float of(Sum sum, int32 at) const {
        return scaled(sum, STARTS ? (&starts.x)[at] : 0, (&scales.x)[at], (&shifts.x)[at]);
    }
};

// What is added to a lane's results of 64 channels: 16 neighbours of two rows.
template <typename Tail>
struct Staged {
    uint4 rows[2];

    __device__ __forceinline__ void read(const Tail& tail, const Share& s, int32 row, int32 channel) {
        if constexpr (Tail::STAGED == 1) {
            #pragma unroll
            for (int32 half = 0; half < 2; half++) {
                const int32 own = row + half * 8;
                if (own < s.m && channel < s.n) rows[half] = *(const uint4*)(tail.staged() + (uint64)own * s.n + channel);
            }
        }
    }
    __device__ __forceinline__ uint32 word(int32 half, int32 at) const {
        return Tail::STAGED == 1 ? (&rows[half].x)[at] : 0;
    }
};

// The sums of 64 columns to results, 16 neighbours of a row at once.
template <bool STARTS, typename Y, typename Sum, typename Tail>
__device__ __forceinline__ void write_spread(Y* y, const Share& s, const Sum* sums, const Tail& tail, const Channels& lists,
                                             const Staged<Tail>& staged, int32 row, int32 channel) {
    if (channel >= s.n) return;
    uint4 results[2];
    #pragma unroll
    for (int32 four = 0; four < 4; four++) {
        const Units<STARTS> units(lists, channel + four * 4);
        #pragma unroll
        for (int32 half = 0; half < 2; half++) {
            const Sum* const own = sums + four * 8 + half * 2;
            const uint32 added = staged.word(half, four);
            const float low[2] = {units.of(own[0], 0), units.of(own[1], 1)};
            const float high[2] = {units.of(own[4], 2), units.of(own[5], 3)};
            const uint32 parts[2] = {added, added >> 16};
            const Pack<Y, 2> pairs[2] = {tail.two(low, parts), tail.two(high, parts + 1)};
            (&results[half].x)[four] = *(const uint16*)pairs | (uint32)*(const uint16*)(pairs + 1) << 16;
        }
    }
    #pragma unroll
    for (int32 half = 0; half < 2; half++) {
        const int32 own = row + half * 8;
        if (own < s.m) *(uint4*)(y + (uint64)own * s.pitch + channel) = results[half];
    }
}

// What two warpgroups do: each tile's sums, and then its results.
template <typename L, typename T, typename Sum, typename Y, bool STARTS, typename Tail>
__device__ __forceinline__ void multiply_spread(const Share& s, Y* y, const Tail& tail, const Channels& lists, uint32 memory,
                                                uint32 full, uint32 empty) {
    const uint32 tiles = Tile<L>::count(s), lane = threadIdx.x % 32;
    Turn<L::STAGES> turn;
    for (uint32 number = blockIdx.x; number < tiles; number += gridDim.x) {
        const Tile<L> tile(s, number);
        const int32 row = tile.row + threadIdx.x / 32 * 16 + lane / 4, column = tile.column + lane % 4 * 16;
        // What is added comes from afar: the first of it is on its way while products are summed, the others while results are made.
        Staged<Tail> staged, next;
        staged.read(tail, s, row, column);
        Sum sums[L::COLUMNS / 2] = {};
        sum_up<L, T>(sums, s.k, memory, full, empty, turn, [] {});
        #pragma unroll
        for (int32 strip = 0; strip < L::COLUMNS; strip += 64) {
            if (strip + 64 < L::COLUMNS) next.read(tail, s, row, column + strip + 64);
            write_spread<STARTS>(y, s, sums + strip / 2, tail, lists, staged, row, column + strip);
            staged = next;
        }
    }
}

template <typename L, typename T, typename Sum, typename Y, bool STARTS, typename Tail, typename Left>
__device__ __forceinline__ void implicit_gemm(Y* y, const Left& left, const TensorMap* right, const Tail& tail,
                                              const Channels& lists, const Share& s) {
    if (threadIdx.x == L::THREADS) expect_map(right);
    produce_and_consume<L, true>(left, SpreadWeights<L>{right}, s, [&](uint32 memory, uint32 full, uint32 empty, uint8*) {
        multiply_spread<L, T, Sum, Y, STARTS>(s, y, tail, lists, memory, full, empty);
    });
}
