// Convolutions in one or two dimensions on tensor cores, as sums over tiles of pixels. Behind `products.cuh`.
//
// A block gives `BN` channels of a tile of places of the result. What the tile sees of the input, its region, comes to shared
// memory BK channels at a time, and is multiplied from there by one element of the kernel after another: the rows of the left
// operand are pixels of the region, wherever they lie in it. Where a region of all elements would be too large, or no better,
// there is one for each element, of just the pixels that it sees. Channels are innermost everywhere; a step leads from one
// pixel to the next.

struct Shape {
    int32 in[2], out[2], channels, results, x_step, y_step, residual_step;
    // From the first pixel seen to the first of the image, and from what one place of the result sees to what the next one does.
    int32 begin[2], stride[2];
    int32 kernel[2];
    // Places of a tile along both axes; how many slots a region has, and pixels from one to the next.
    int32 tile[2], slots, pixels[2];
    // Regions that there is room for, and whether each is of one element of the kernel. Slots from what one place of the tile
    // sees to what the next one does.
    int32 regions, single, place_slots[2];
    // From one element of the kernel to the next: slots of a region, or pixels between regions.
    int32 tap_slots[2], tap_pixels[2];
    int32 steps, activation;
    float numbers[2];
    // Places along a row of a tile, and slots of a region; elements of the kernel, and along its rows; tiles along axes.
    Divisor tile_width, region_width, taps, kernel_width, down, across;
};

// One of the steps in which the sums are taken: elements of the kernel, and then channels.
struct Step {
    int32 row, column, channel, region;
    // Where its weights are in the row of a result.
    int32 weights;

    template <typename L>
    static __device__ __forceinline__ Step at(int32 number, const Shape& s) {
        uint32 rest = number;
        const uint32 tap = s.taps.take(rest);
        const int32 row = s.kernel_width.divide(tap);
        const int32 channel = (int32)rest * L::BK;
        return {row, (int32)tap - row * s.kernel[1], channel, 0, (int32)tap * s.channels + channel};
    }

    // Goes to the next one, and says whether that has a region of its own.
    template <typename L>
    __device__ __forceinline__ bool next(const Shape& s) {
        bool other = s.single;
        weights += s.channels;
        if (++column == s.kernel[1]) {
            column = 0;
            if (++row == s.kernel[0]) {
                row = 0;
                channel += L::BK;
                weights = channel;
                other = true;
            }
        }
        if (other && ++region == s.regions) region = 0;
        return other;
    }
};

// The tile of a block: its image, its corner, and its columns of the result.
struct Place {
    int32 image, top, left, first;

    template <typename L>
    static __device__ __forceinline__ Place of_block(const Shape& s) {
        uint32 rest = blockIdx.x;
        const int32 left = s.across.take(rest) * s.tile[1], top = s.down.take(rest) * s.tile[0];
        return {(int32)rest, top, left, (int32)blockIdx.y * L::BN};
    }

    // The pixel of the result that a row of the tile is; negative where there is none.
    __device__ __forceinline__ int64 pixel(int32 r, const Shape& s) const {
        const int32 row = s.tile_width.divide(r), h = top + row, w = left + r - row * s.tile[1];
        if (row >= s.tile[0] || h >= s.out[0] || w >= s.out[1]) return -1;
        return ((int64)image * s.out[0] + h) * s.out[1] + w;
    }
};

// The weights as a thread brings them: a row for each result, which is elements of the kernel, and in each of those channels.
template <typename L, typename T>
struct Weights {
    static constexpr int32 CHUNKS = L::BK / 8, HOP = L::THREADS / CHUNKS, COPIES = (L::BN + HOP - 1) / HOP;
    static_assert(HOP % 8 == 0, "rows of a thread are spread alike");
    const T* from;
    int64 hop;
    uint32 to;
    int32 channel, left;

    __device__ __forceinline__ Weights(const T* w, const Place& place, const Shape& s) {
        const int32 row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS, pitch = s.taps.size * s.channels;
        channel = chunk * 8;
        from = w + (int64)(place.first + row) * pitch + channel;
        hop = (int64)HOP * pitch;
        to = spread<CHUNKS>(row, chunk);
        left = min(s.results - place.first, L::BN) - row;
    }

    // What a step needs: zeros beyond the last result or channel.
    __device__ __forceinline__ void fetch(uint32 stage, const Step& step, const Shape& s) const {
        const bool within = step.channel + channel < s.channels;
        const T* at = from + step.weights;
        #pragma unroll
        for (int32 i = 0; i < COPIES; i++) {
            if (L::BN % HOP == 0 || i * HOP < L::BN - (int32)threadIdx.x / CHUNKS) {
                copy_ahead(stage + to + i * L::THREADS * 16, at, within && i * HOP < left ? 16 : 0);
            }
            at += hop;
        }
    }
};

__device__ __forceinline__ void store_four(uint32 to, uint32 word) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(word) : "memory");
}

// The region of a step. Beyond the image are zeros, or where it is FILLED four bytes of `outside` again and again.
template <typename L, bool FILLED, typename T>
__device__ __forceinline__ void fetch_region(uint32 to, const T* x, const Place& place, const Step& step, const Shape& s,
                                             uint32 outside) {
    constexpr int32 CHUNKS = L::BK / 8;
    const int32 chunk = threadIdx.x % CHUNKS, channel = step.channel + chunk * 8;
    const int32 top = place.top * s.stride[0] - s.begin[0] + step.row * s.tap_pixels[0];
    const int32 left = place.left * s.stride[1] - s.begin[1] + step.column * s.tap_pixels[1];
    const bool within = channel < s.channels;
    #pragma unroll 2
    for (int32 slot = threadIdx.x / CHUNKS; slot < s.slots; slot += L::THREADS / CHUNKS) {
        uint32 rest = slot;
        const int32 column = s.region_width.take(rest), h = top + (int32)rest * s.pixels[0], v = left + column * s.pixels[1];
        const bool there = within && h >= 0 && h < s.in[0] && v >= 0 && v < s.in[1];
        const int64 pixel = ((int64)place.image * s.in[0] + h) * s.in[1] + v;
        const uint32 own = to + spread<CHUNKS>(slot, chunk);
        if (FILLED && !there) store_four(own, within ? outside : 0);
        else copy_ahead(own, there ? x + pixel * s.x_step + channel : x, there ? 16 : 0);
    }
}

// Products of warps, for `sum_pixels`.
template <typename L, typename T>
struct Warps {
    typedef Fragments<L> Read;

    template <typename Sum, typename Load, typename Into>
    static __device__ __forceinline__ void take(Sum (&sums)[L::WM / 16][L::WN / 8][4], int32 steps, const Load& load,
                                                const Into& read, uint32) {
        take_steps<L, T>(sums, steps, load, read);
    }
};

// The sums of a tile. HELD says that nobody writes the weights any more; `while_loading()` has the time in which the first steps
// come, and `Multiplier::take(sums, steps, load, read, stages)` takes the steps.
template <typename L, bool HELD, bool FILLED, typename Multiplier, typename T, typename Sum, typename While>
__device__ __forceinline__ void sum_pixels(Sum (&sums)[L::WM / 16][L::WN / 8][4], uint8* memory, const T* x, const T* w,
                                           const Place& place, const Shape& s, uint32 outside, const While& while_loading) {
    const int32 share = (s.steps + L::SPLIT - 1) / L::SPLIT, start = blockIdx.z * share;
    const int32 steps = min(start + share, s.steps) - start, region_bytes = s.slots * L::BK * 2;
    // The regions lie behind the weights.
    const uint32 stages = shared_address(memory), regions = stages + L::STAGES * L::B_BYTES;
    const Weights<L, T> weights(w, place, s);
    Step now = Step::at<L>(start, s), weighed = now, seen = now;
    bool other = true;
    // Either may run ahead of the other.
    const auto load_weights = [&](int32 number) {
        weights.fetch(stages + number % L::STAGES * L::B_BYTES, weighed, s);
        weighed.next<L>(s);
    };
    const auto load_region = [&]() {
        if (other) fetch_region<L, FILLED>(regions + seen.region * region_bytes, x, place, seen, s, outside);
        other = seen.next<L>(s);
    };
    const auto load = [&](int32 number) {
        load_region();
        load_weights(number);
    };
    const auto early = [&](int32 number) {
        if (HELD) load_weights(number);
    };
    const auto rest = [&](int32 number) {
        load_region();
        if (!HELD) load_weights(number);
    };
    begin_steps<L>(steps, early, rest);
    while_loading();
    // The slots of the pixels that the first element of the kernel sees: those of rows that are none are not looked at.
    uint32 slots[L::WM / 16];
    #pragma unroll
    for (int32 i = 0; i < L::WM / 16; i++) {
        const int32 r = L::row() + i * 16 + threadIdx.x % 16, row = s.tile_width.divide(r), column = r - row * s.tile[1];
        slots[i] = row < s.tile[0] ? row * s.place_slots[0] + column * s.place_slots[1] : 0;
    }
    // Where the chunk of the warp's share of a step is in a row; where the lane's row of the weights begins.
    constexpr uint32 CHUNKS = L::BK / 8;
    const uint32 lane = threadIdx.x % 32, own = L::part() * 2;
    const uint32 column = L::column() + lane % 8 + lane / 16 * 8;
    const uint32 turned = spread<CHUNKS>(column, own + lane / 8 % 2);
    const auto read = [&](int32 number, typename Multiplier::Read& into) {
        const uint32 a = regions + now.region * region_bytes, b = stages + number % L::STAGES * L::B_BYTES;
        const uint32 beyond = now.row * s.tap_slots[0] + now.column * s.tap_slots[1];
        const auto left = [&](uint32(&four)[4], uint32 i, uint32 k) {
            load_matrices(four, a + spread<CHUNKS>(slots[i] + beyond, k / 8 + lane / 16));
        };
        // Shares of a step differ in bits that no share has in itself.
        const auto right = [&](uint32(&four)[4], uint32 j, uint32 k) {
            load_matrices(four, b + ((turned + j * 16 * CHUNKS * 16) ^ (k / 8 - own) * 16));
        };
        into.read(left, right);
        now.next<L>(s);
    };
    Multiplier::take(sums, steps, load, read, stages);
}
