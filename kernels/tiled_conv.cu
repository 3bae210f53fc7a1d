// Small convolutions in one or two dimensions, on tensor cores. Behind `products.cuh`.
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
    float slope;
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

// The region of a step: zeros where it is beyond the image.
template <typename L, typename T>
__device__ __forceinline__ void fetch_region(uint32 to, const T* x, const Place& place, const Step& step, const Shape& s) {
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
        copy_ahead(to + spread<CHUNKS>(slot, chunk), there ? x + pixel * s.x_step + channel : x, there ? 16 : 0);
    }
}

// What is read for the results that a thread writes, while the sums are taken: their channels are the same for all.
template <typename L, typename T>
struct Follows {
    Pack<T, 8> shift, others[L::EACH];

    __device__ __forceinline__ void read(const T* bias, const T* residual, const Place& place, const Shape& s) {
        each_eight<L>([&](int32 number, int32 row, int32 column) {
            const int64 pixel = place.pixel(row, s);
            const int32 channel = place.first + column;
            if (bias && number == 0 && channel < s.results) shift = *(const Pack<T, 8>*)(bias + channel);
            if (pixel < 0 || channel >= s.results) return;
            if (residual) others[number] = *(const Pack<T, 8>*)(residual + pixel * s.residual_step + channel);
        });
    }
};

template <typename F>
__device__ __forceinline__ void each(float (&x)[8], const F& function) {
    #pragma unroll
    for (int32 k = 0; k < 8; k++) x[k] = function(x[k]);
}

// What is done with results in the end.
__device__ __forceinline__ void activate(float (&x)[8], int32 activation, float slope) {
    switch (activation) {
        // Not a product with 0, which of an infinite number is none.
        case 1: return each(x, [&](float v) { return slope == 0.0f ? f_relu(v) : f_leaky_relu(v, slope); });
        case 2: return each(x, [](float v) { return f_fast_sigmoid(v); });
        case 3: return each(x, [](float v) { return f_fast_silu(v); });
        case 4: return each(x, [](float v) { return f_fast_tanh(v); });
        case 5: return each(x, [](float v) { return f_fast_gelu(v); });
    }
}

// `residual` may be `y`. HELD says that nobody writes the weights any more.
template <typename L, bool HELD, typename T>
__device__ __forceinline__ void convolve(T* y, const T* x, const T* w, const T* bias, const T* residual, const Shape& s) {
    extern __shared__ __align__(128) uint8 memory[];
    const Place place = Place::of_block<L>(s);
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
        if (other) fetch_region<L>(regions + seen.region * region_bytes, x, place, seen, s);
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
    const bool wide = s.results % 8 == 0 && s.y_step % 8 == 0 && s.residual_step % 8 == 0;
    Follows<L, T> follows;
    if (wide) follows.read(bias, residual, place, s);
    // The slots of the pixels that the first element of the kernel sees: those of rows that are none are not looked at.
    uint32 slots[L::WM / 16];
    #pragma unroll
    for (int32 i = 0; i < L::WM / 16; i++) {
        const int32 r = L::row() + i * 16 + threadIdx.x % 16, row = s.tile_width.divide(r), column = r - row * s.tile[1];
        slots[i] = row < s.tile[0] ? row * s.place_slots[0] + column * s.place_slots[1] : 0;
    }
    float sums[L::WM / 16][L::WN / 8][4] = {};
    // Where the chunk of the warp's share of a step is in a row; where the lane's row of the weights begins.
    constexpr uint32 CHUNKS = L::BK / 8;
    const uint32 lane = threadIdx.x % 32, own = L::part() * 2;
    const uint32 column = L::column() + lane % 8 + lane / 16 * 8;
    const uint32 turned = spread<CHUNKS>(column, own + lane / 8 % 2);
    take_steps<L, T>(sums, steps, load, [&](int32 number, Fragments<L>& into) {
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
    });
    finish<L>((float*)memory, sums, [&](int32 number, int32 row, int32 column, const float* laid) {
        const int64 pixel = place.pixel(row, s);
        const int32 channel = place.first + column;
        if (pixel < 0 || channel >= s.results) return;
        float eight[8];
        collect<L>(eight, laid);
        T* to = y + pixel * s.y_step + channel;
        Pack<T, 8> shift = {}, other = {}, pack;
        if (wide) {
            shift = follows.shift;
            other = follows.others[number];
        } else {
            #pragma unroll
            for (int32 k = 0; k < 8; k++) {
                if (bias && channel + k < s.results) shift.item[k] = bias[channel + k];
                if (residual && channel + k < s.results) other.item[k] = residual[pixel * s.residual_step + channel + k];
            }
        }
        #pragma unroll
        for (int32 k = 0; k < 8; k++) {
            if (bias) eight[k] += widen(shift.item[k]);
            if (residual) eight[k] += widen(other.item[k]);
        }
        activate(eight, s.activation, s.slope);
        #pragma unroll
        for (int32 k = 0; k < 8; k++) pack.item[k] = Narrow<T>::from(eight[k]);
        if (wide) {
            *(Pack<T, 8>*)to = pack;
        } else {
            #pragma unroll
            for (int32 k = 0; k < 8; k++) {
                if (channel + k < s.results) to[k] = pack.item[k];
            }
        }
    });
}
