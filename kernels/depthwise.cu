// Convolutions of each channel by itself, in two dimensions: bound by memory, so that each thread takes a pack of channels
// and a run of places along a row, and reads each pixel of the input once for all places that see it.
// Channels are innermost everywhere; a step leads from one pixel to the next.

struct Shape {
    int32 in_height, in_width, out_height, out_width, kernel_height, stride_height, dilation_height, begin_height, begin_width;
    int32 x_step, y_step, residual_step;
    float numbers[2];
    // Packs of channels of a block; runs of a row, and of all rows of all images.
    int32 groups, runs, items;
};

// The weights of the block's channels, by kernel element and then channel.
extern __shared__ Pack<float, 4> kept[];

// What one thread computes: RUN places of a row, for a pack of V channels.
template <typename T, int V, int WIDTH, int STRIDE, int RUN>
struct Places {
    // Pixels of a row that the places see.
    static const int32 SEEN = (RUN - 1) * STRIDE + WIDTH;
    typedef Pack<T, V> Row[SEEN];

    // Row and column of the first pixel that is seen, which may lie outside; its channels in the first row of the image.
    int32 top, left;
    const T* column;
    // Channels of the block, and the first of the thread's among them.
    int32 own, local;
    float sum[RUN][V];

    __device__ __forceinline__ bool sees(int32 row, const Shape& s) const { return row >= 0 && row < s.in_height; }

    __device__ __forceinline__ void load(Row& seen, int32 tap, const Shape& s) const {
        const int32 row = top + tap * s.dilation_height;
        if (!sees(row, s)) return;
        const T* from = column + (int64)row * s.in_width * s.x_step;
#pragma unroll
        for (int32 j = 0; j < SEEN; j++) {
            if (left + j >= 0 && left + j < s.in_width) seen[j] = *(const Pack<T, V>*)(from + j * s.x_step);
        }
    }

    __device__ __forceinline__ void add(const Row& seen, int32 tap, const Shape& s) {
        if (!sees(top + tap * s.dilation_height, s)) return;
        float weights[WIDTH][V];
#pragma unroll
        for (int32 b = 0; b < WIDTH; b++) {
            const Pack<float, V>* from = (const Pack<float, V>*)((const float*)kept + (tap * WIDTH + b) * own + local);
#pragma unroll
            for (int32 v = 0; v < V; v++) weights[b][v] = from->item[v];
        }
#pragma unroll
        for (int32 j = 0; j < SEEN; j++) {
            // Padding is left out, not multiplied: a weight may be infinite.
            if (left + j < 0 || left + j >= s.in_width) continue;
#pragma unroll
            for (int32 v = 0; v < V; v++) {
                const float value = widen(seen[j].item[v]);
#pragma unroll
                for (int32 t = 0; t < RUN; t++) {
                    if (j >= t * STRIDE && j < t * STRIDE + WIDTH) sum[t][v] += value * weights[j - t * STRIDE][v];
                }
            }
        }
    }

    // Takes the sums. Where little is to be done latency counts: all rows of a kernel of HEIGHT are loaded before the first is used.
    template <int HEIGHT>
    __device__ __forceinline__ void take(const Shape& s) {
#pragma unroll
        for (int32 t = 0; t < RUN; t++) {
#pragma unroll
            for (int32 v = 0; v < V; v++) sum[t][v] = 0;
        }
        if constexpr (HEIGHT > 0) {
            Row seen[HEIGHT];
#pragma unroll
            for (int32 a = 0; a < HEIGHT; a++) load(seen[a], a, s);
#pragma unroll
            for (int32 a = 0; a < HEIGHT; a++) add(seen[a], a, s);
        } else {
            for (int32 a = 0; a < s.kernel_height; a++) {
                Row seen;
                load(seen, a, s);
                add(seen, a, s);
            }
        }
    }
};

// HELD: nobody writes the weights any more. HEIGHT is that of the kernel, or 0 where its rows come one after another.
// AFTER is what is done behind the activation, as `f_after` knows it.
template <typename T, int V, int HEIGHT, int WIDTH, int STRIDE, int RUN, int ACTIVATION, int AFTER, bool HELD>
__device__ void depthwise(T* y, const T* x, const T* w, const T* bias, const T* residual, const T* scale, const T* shift, const Shape& s) {
    if (!HELD) wait_for_previous();
    const int32 own = s.groups * V, taps = s.kernel_height * WIDTH, first = blockIdx.y * own;
    for (int32 at = threadIdx.x; at < own * taps; at += blockDim.x) {
        ((float*)kept)[at % taps * own + at / taps] = widen(w[(uint64)first * taps + at]);
    }
    __syncthreads();
    after_previous();
    const int32 lines = blockDim.x / s.groups, line = threadIdx.x / s.groups;
    Places<T, V, WIDTH, STRIDE, RUN> places;
    places.own = own;
    places.local = threadIdx.x % s.groups * V;
    const int32 channel = first + places.local;
    for (int32 item = blockIdx.x * lines + line; item < s.items; item += gridDim.x * lines) {
        const int32 start = item % s.runs * RUN, row = item / s.runs;
        const int32 height = row % s.out_height, image = row / s.out_height;
        places.left = start * STRIDE - s.begin_width;
        places.top = height * s.stride_height - s.begin_height;
        places.column = x + ((int64)image * s.in_height * s.in_width + places.left) * s.x_step + channel;
        places.template take<HEIGHT>(s);
        Pack<T, V> biases, factor = {}, summand = {};
        if (bias) biases = *(const Pack<T, V>*)(bias + channel);
        if constexpr ((AFTER & 1) != 0) factor = *(const Pack<T, V>*)(scale + channel);
        if constexpr ((AFTER & 2) != 0) summand = *(const Pack<T, V>*)(shift + channel);
#pragma unroll
        for (int32 t = 0; t < RUN; t++) {
            if (start + t >= s.out_width) break;
            const uint64 pixel = (uint64)row * s.out_width + start + t;
            Pack<T, V> other = {}, result;
            if (residual) other = *(const Pack<T, V>*)(residual + pixel * s.residual_step + channel);
#pragma unroll
            for (int32 v = 0; v < V; v++) {
                float value = places.sum[t][v];
                if (bias) value += widen(biases.item[v]);
                if (residual && (AFTER & 4) == 0) value += widen(other.item[v]);
                value = f_activated(value, ACTIVATION, s.numbers);
                value = f_after<AFTER>(value, widen(factor.item[v]), widen(summand.item[v]), widen(other.item[v]));
                result.item[v] = Narrow<T>::from(value);
            }
            *(Pack<T, V>*)(y + pixel * s.y_step + channel) = result;
        }
    }
}
