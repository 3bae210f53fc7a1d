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

template <typename T, int V, int WIDTH, int STRIDE, int RUN, int ACTIVATION>
__device__ void depthwise(T* y, const T* x, const T* w, const T* bias, const T* residual, const Shape& s) {
    const int32 SEEN = (RUN - 1) * STRIDE + WIDTH;
    float* weights = (float*)kept;
    const int32 own = s.groups * V, taps = s.kernel_height * WIDTH, first = blockIdx.y * own;
    for (int32 at = threadIdx.x; at < own * taps; at += blockDim.x) {
        weights[at % taps * own + at / taps] = widen(w[(uint64)first * taps + at]);
    }
    __syncthreads();
    const int32 lines = blockDim.x / s.groups, line = threadIdx.x / s.groups, local = threadIdx.x % s.groups * V;
    const int32 channel = first + local;
    for (int32 item = blockIdx.x * lines + line; item < s.items; item += gridDim.x * lines) {
        const int32 start = item % s.runs * RUN, row = item / s.runs;
        const int32 height = row % s.out_height, image = row / s.out_height;
        float sum[RUN][V];
#pragma unroll
        for (int32 t = 0; t < RUN; t++) {
#pragma unroll
            for (int32 v = 0; v < V; v++) sum[t][v] = 0;
        }
        const int32 left = start * STRIDE - s.begin_width;
        for (int32 a = 0; a < s.kernel_height; a++) {
            const int32 above = height * s.stride_height + a * s.dilation_height - s.begin_height;
            if (above < 0 || above >= s.in_height) continue;
            const T* line_of_x = x + ((uint64)image * s.in_height + above) * s.in_width * s.x_step + channel;
            Pack<T, V> seen[SEEN];
#pragma unroll
            for (int32 j = 0; j < SEEN; j++) {
                const int32 at = left + j;
                if (at >= 0 && at < s.in_width) seen[j] = *(const Pack<T, V>*)(line_of_x + (uint64)at * s.x_step);
            }
            float tap[WIDTH][V];
#pragma unroll
            for (int32 b = 0; b < WIDTH; b++) {
                const Pack<float, V>* from = (const Pack<float, V>*)(weights + (a * WIDTH + b) * own + local);
#pragma unroll
                for (int32 v = 0; v < V; v++) tap[b][v] = from->item[v];
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
                        if (j >= t * STRIDE && j < t * STRIDE + WIDTH) sum[t][v] += value * tap[j - t * STRIDE][v];
                    }
                }
            }
        }
        Pack<T, V> shift;
        if (bias) shift = *(const Pack<T, V>*)(bias + channel);
#pragma unroll
        for (int32 t = 0; t < RUN; t++) {
            if (start + t >= s.out_width) break;
            const uint64 pixel = (uint64)row * s.out_width + start + t;
            Pack<T, V> other, result;
            if (residual) other = *(const Pack<T, V>*)(residual + pixel * s.residual_step + channel);
#pragma unroll
            for (int32 v = 0; v < V; v++) {
                float value = sum[t][v];
                if (bias) value += widen(shift.item[v]);
                if (residual) value += widen(other.item[v]);
                result.item[v] = Narrow<T>::from(f_activated(value, ACTIVATION, s.numbers));
            }
            *(Pack<T, V>*)(y + pixel * s.y_step + channel) = result;
        }
    }
}
