// Convolutions of each channel by itself, in two dimensions, to one result or a few. Each thread takes a pack of results and a run of
// places along a row, of one row or of two, and reads each pixel of the input once for all places of a row that see it.
// Channels are innermost everywhere; a step leads from one pixel to the next.

struct Shape {
    int32 in_height, in_width, out_height, out_width, kernel_height, stride_height, dilation_height, begin_height, begin_width;
    int32 x_step, y_step, residual_step;
    float numbers[2];
    // Packs of channels of a block; runs of a row, and of all strips of ROWS rows of all images.
    int32 groups, runs, items;
    // Elements of the kernel.
    Divisor taps;
};

// The weights of the block's channels, by kernel element and then channel, and some room between, so that those of a channel are stored
// in different banks.
extern __shared__ Pack<float, 4> kept[];
static const int32 ROOM = 4;

// What one thread computes: RUN places of ROWS rows, for a pack of V results, of which each channel has EACH.
template <typename T, int V, int EACH, int WIDTH, int STRIDE, int RUN, int ROWS>
struct Places {
    // Channels that it reads.
    static const int32 READ = V > EACH ? V / EACH : 1;
    // Pixels of a row that the places see.
    static const int32 SEEN = (RUN - 1) * STRIDE + WIDTH;
    static const uint32 ALL = (uint32)(((uint64)1 << SEEN) - 1);
    typedef Pack<T, READ> Row[SEEN];

    // Row and column of the first pixel that is seen, which may lie outside; its channels in the first row of the image.
    int32 top, left;
    const T* column;
    // Elements from the weights of one kernel element to those of the next, and the first channel of the thread among them.
    int32 pitch, local;
    // A bit for each pixel of a row that lies inside.
    uint32 inside;
    float sum[ROWS][RUN][V];

    __device__ __forceinline__ bool sees(int32 row, const Shape& s) const { return row >= 0 && row < s.in_height; }

    __device__ __forceinline__ void begin(const Shape& s) {
        inside = 0;
#pragma unroll
        for (int32 j = 0; j < SEEN; j++) inside |= (uint32)(left + j >= 0 && left + j < s.in_width) << j;
#pragma unroll
        for (int32 at = 0; at < ROWS * RUN * V; at++) sum[at / (RUN * V)][at / V % RUN][at % V] = 0;
    }

    // The pixels of a row; those outside are 0.
    __device__ __forceinline__ void load(Row& seen, int32 row, const Shape& s) const {
        if (!sees(row, s)) return;
        const T* from = column + (int64)row * s.in_width * s.x_step;
        if (inside == ALL) {
#pragma unroll
            for (int32 j = 0; j < SEEN; j++, from += s.x_step) seen[j] = *(const Pack<T, READ>*)from;
            return;
        }
#pragma unroll
        for (int32 j = 0; j < SEEN; j++, from += s.x_step) {
            seen[j] = {};
            if (inside >> j & 1) seen[j] = *(const Pack<T, READ>*)from;
        }
    }

    // Adds what a row of the input gives to rows FROM to TO, for the first of which it is row `tap` of the kernel. Where a weight may
    // be infinite, padding is left out, not multiplied.
    template <int FROM, int TO, bool FINITE>
    __device__ __forceinline__ void add(const Row& seen, int32 tap) {
        float weights[TO - FROM][WIDTH][V];
#pragma unroll
        for (int32 at = 0; at < (TO - FROM) * WIDTH; at++) {
            const int32 row = at / WIDTH, b = at % WIDTH;
            const Pack<float, V>* from = (const Pack<float, V>*)((const float*)kept + ((tap - row) * WIDTH + b) * pitch + local);
#pragma unroll
            for (int32 v = 0; v < V; v++) weights[row][b][v] = from->item[v];
        }
#pragma unroll
        for (int32 j = 0; j < SEEN; j++) {
            if (!FINITE && !(inside >> j & 1)) continue;
            float pixel[READ];
            widen_pack(pixel, seen[j]);
#pragma unroll
            for (int32 v = 0; v < V; v++) {
#pragma unroll
                for (int32 at = 0; at < (TO - FROM) * RUN; at++) {
                    const int32 row = at / RUN, b = j - at % RUN * STRIDE;
                    if (b >= 0 && b < WIDTH) sum[FROM + row][at % RUN][v] += pixel[v / (V / READ)] * weights[row][b][v];
                }
            }
        }
    }

    // Takes the sums. Where little is to be done latency counts: all rows of a kernel of HEIGHT are loaded before the first is used.
    template <int HEIGHT>
    __device__ __forceinline__ void take(const Shape& s) {
        if constexpr (HEIGHT > 0) {
            Row seen[HEIGHT];
#pragma unroll
            for (int32 a = 0; a < HEIGHT; a++) load(seen[a], top + a * s.dilation_height, s);
#pragma unroll
            for (int32 a = 0; a < HEIGHT; a++) {
                if (sees(top + a * s.dilation_height, s)) add<0, 1, false>(seen[a], a);
            }
        } else {
            for (int32 a = 0; a < s.kernel_height; a++) {
                Row seen;
                load(seen, top + a * s.dilation_height, s);
                if (sees(top + a * s.dilation_height, s)) add<0, 1, false>(seen, a);
            }
        }
    }

    // Those of two rows, which see all but one of their rows together.
    template <bool FINITE>
    __device__ __forceinline__ void take_both(const Shape& s) {
        Row seen;
        load(seen, top, s);
        if (sees(top, s)) add<0, 1, FINITE>(seen, 0);
        for (int32 a = 1; a < s.kernel_height; a++) {
            load(seen, top + a, s);
            if (sees(top + a, s)) add<0, 2, FINITE>(seen, a);
        }
        load(seen, top + s.kernel_height, s);
        if (sees(top + s.kernel_height, s)) add<1, 2, FINITE>(seen, s.kernel_height - 1);
    }
};

// HEIGHT is that of the kernel, or 0 where its rows come one after another. AFTER is what is done behind the activation, as `f_after`
// knows it; HELD: nobody writes the weights any more.
template <typename T, int V, int EACH, int HEIGHT, int WIDTH, int STRIDE, int RUN, int ROWS, int ACTIVATION, int AFTER, bool HELD>
__device__ void depthwise(T* y, const T* x, const T* w, const T* bias, const T* residual, const T* scale, const T* shift, const Shape& s) {
    if (!HELD) wait_for_previous();
    const int32 own = s.groups * V, taps = s.taps.size, first = blockIdx.y * own;
    bool finite = true;
    for (int32 at = threadIdx.x; at < own * taps; at += blockDim.x) {
        const int32 channel = s.taps.divide(at);
        const float weight = widen(w[(uint64)first * taps + at]);
        ((float*)kept)[(at - channel * taps) * (own + ROOM) + channel] = weight;
        finite = finite && weight - weight == 0;
    }
    if constexpr (ROWS == 1) __syncthreads();
    else finite = __syncthreads_and(finite);
    after_previous();
    const int32 lines = blockDim.x / s.groups, line = threadIdx.x / s.groups;
    Places<T, V, EACH, WIDTH, STRIDE, RUN, ROWS> places;
    places.pitch = own + ROOM;
    places.local = threadIdx.x % s.groups * V;
    const int32 channel = first + places.local, strips = (s.out_height + ROWS - 1) / ROWS;
    for (int32 item = blockIdx.x * lines + line; item < s.items; item += gridDim.x * lines) {
        const int32 start = item % s.runs * RUN, strip = item / s.runs;
        const int32 height = strip % strips * ROWS, image = strip / strips;
        places.left = start * STRIDE - s.begin_width;
        places.top = height * s.stride_height - s.begin_height;
        places.column = x + ((int64)image * s.in_height * s.in_width + places.left) * s.x_step + channel / EACH;
        places.begin(s);
        if constexpr (ROWS == 1) places.template take<HEIGHT>(s);
        else if (finite) places.template take_both<true>(s);
        else places.template take_both<false>(s);
        Pack<T, V> biases = {}, factor = {}, summand = {};
        if (bias) biases = *(const Pack<T, V>*)(bias + channel);
        if constexpr ((AFTER & After::SCALE) != 0) factor = *(const Pack<T, V>*)(scale + channel);
        if constexpr ((AFTER & After::SHIFT) != 0) summand = *(const Pack<T, V>*)(shift + channel);
#pragma unroll
        for (int32 at = 0; at < ROWS * RUN; at++) {
            const int32 row = at / RUN, t = at % RUN;
            if (start + t >= s.out_width || (ROWS > 1 && height + row >= s.out_height)) continue;
            const uint64 pixel = ((uint64)image * s.out_height + height + row) * s.out_width + start + t;
            Pack<T, V> other = {}, result;
            if (residual) other = *(const Pack<T, V>*)(residual + pixel * s.residual_step + channel);
#pragma unroll
            for (int32 v = 0; v < V; v++) {
                float value = places.sum[row][t][v] + (bias ? widen(biases.item[v]) : 0.0f);
                if (residual && (AFTER & After::RESIDUAL) == 0) value += widen(other.item[v]);
                value = f_activated(value, ACTIVATION, s.numbers);
                value = f_after<AFTER>(value, widen(factor.item[v]), widen(summand.item[v]), widen(other.item[v]));
                result.item[v] = Narrow<T>::from(value);
            }
            *(Pack<T, V>*)(y + pixel * s.y_step + channel) = result;
        }
    }
}
