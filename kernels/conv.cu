// A convolution of any sort, or the transpose of one, one result a thread; and what follows a convolution, on its own.
// Results have channels innermost; a step leads from one pixel to the next, for tensors that are slices of larger ones.

struct Shape {
    int32 batch, channels, results, groups, y_step, residual_step, activation;
    float numbers[2];
    // Strides of batch, channels and spatial axes; of the outer and the inner channels, and of the kernel's elements.
    int32 x_stride[5], w_stride[3];
    int32 in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
};

// The place of the input that a place of the result sees through one element of the kernel; negative where there is none.
template <bool TRANSPOSED>
__device__ __forceinline__ int32 seen(int32 out, int32 tap, int32 axis, const Shape& s) {
    int32 at;
    if (TRANSPOSED) {
        at = out + s.begin[axis] - tap * s.dilation[axis];
        if (at < 0 || at % s.stride[axis] != 0) return -1;
        at /= s.stride[axis];
    } else {
        at = out * s.stride[axis] + tap * s.dilation[axis] - s.begin[axis];
    }
    return at < s.in[axis] ? at : -1;
}

// An element of the input as it is in the type of the weights.
template <typename T, typename X>
__device__ __forceinline__ typename Wide<T>::type rounded(X x) {
    return sizeof(X) == sizeof(T) ? widen(x) : widen(Narrow<T>::from(widen(x)));
}

// AFTER: what is done behind the activation, of `After`.
template <typename T, typename X, bool TRANSPOSED, int32 AFTER>
__device__ void convolve(T* y, const X* x, const T* w, const T* bias, const T* residual, const T* scale, const T* shift, const Shape& s) {
    typedef typename Wide<T>::type W;
    const uint64 at = (uint64)blockIdx.x * blockDim.x + threadIdx.x;
    const uint64 plane = (uint64)s.out[0] * s.out[1] * s.out[2];
    if (at >= plane * s.batch * s.results) return;
    const int32 m = at % s.results;
    const uint64 pixel = at / s.results;
    uint64 place = pixel;
    int32 o[3];
    for (int32 axis = 2; axis >= 0; axis--) {
        o[axis] = place % s.out[axis];
        place /= s.out[axis];
    }
    const int32 n = place, inputs = s.channels / s.groups, results = s.results / s.groups;
    const int32 first = m / results * inputs;
    W sum = 0;
    for (int32 a = 0; a < s.kernel[0]; a++) {
        const int32 i0 = seen<TRANSPOSED>(o[0], a, 0, s);
        if (i0 < 0) continue;
        for (int32 b = 0; b < s.kernel[1]; b++) {
            const int32 i1 = seen<TRANSPOSED>(o[1], b, 1, s);
            if (i1 < 0) continue;
            for (int32 c = 0; c < s.kernel[2]; c++) {
                const int32 i2 = seen<TRANSPOSED>(o[2], c, 2, s);
                if (i2 < 0) continue;
                const uint64 pixel_of_x = (uint64)i0 * s.x_stride[2] + (uint64)i1 * s.x_stride[3] + (uint64)i2 * s.x_stride[4];
                const X* px = x + (uint64)n * s.x_stride[0] + pixel_of_x + (uint64)first * s.x_stride[1];
                const uint64 tap = (uint64)((a * s.kernel[1] + b) * s.kernel[2] + c) * s.w_stride[2];
                const int32 outer = TRANSPOSED ? first : m, inner = TRANSPOSED ? m % results : 0;
                const T* pw = w + (uint64)outer * s.w_stride[0] + (uint64)inner * s.w_stride[1] + tap;
                const uint64 next = s.w_stride[TRANSPOSED ? 0 : 1];
                for (int32 k = 0; k < inputs; k++) sum += rounded<T>(px[(uint64)k * s.x_stride[1]]) * widen(pw[k * next]);
            }
        }
    }
    if (bias) sum += widen(bias[m]);
    const W other = residual ? widen(residual[pixel * s.residual_step + m]) : (W)0;
    if (residual && (AFTER & After::RESIDUAL) == 0) sum += other;
    const W factor = AFTER & After::SCALE ? widen(scale[m]) : (W)1, summand = AFTER & After::SHIFT ? widen(shift[m]) : (W)0;
    y[pixel * s.y_step + m] = Narrow<T>::from(f_after<AFTER>(f_activated(sum, s.activation, s.numbers), factor, summand, other));
}

struct Tail {
    // Packs of all pixels, and of one.
    int32 items, packs, from_step, y_step, residual_step;
    float numbers[2];
};

// V channels a thread; `from` may be `y`.
template <typename T, int V, int ACTIVATION, int32 AFTER>
__device__ void finish(T* y, const T* from, const T* bias, const T* residual, const T* scale, const T* shift, const Tail& s) {
    typedef typename Wide<T>::type W;
    const int32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= s.items) return;
    const uint64 pixel = at / s.packs;
    const int32 channel = at % s.packs * V;
    Pack<T, V> value = *(const Pack<T, V>*)(from + pixel * s.from_step + channel), biases, other = {}, factor = {}, summand = {};
    if (bias) biases = *(const Pack<T, V>*)(bias + channel);
    if (residual) other = *(const Pack<T, V>*)(residual + pixel * s.residual_step + channel);
    if constexpr ((AFTER & After::SCALE) != 0) factor = *(const Pack<T, V>*)(scale + channel);
    if constexpr ((AFTER & After::SHIFT) != 0) summand = *(const Pack<T, V>*)(shift + channel);
#pragma unroll
    for (int32 i = 0; i < V; i++) {
        W sum = widen(value.item[i]);
        if (bias) sum += widen(biases.item[i]);
        if (residual && (AFTER & After::RESIDUAL) == 0) sum += widen(other.item[i]);
        sum = f_activated(sum, ACTIVATION, s.numbers);
        value.item[i] = Narrow<T>::from(f_after<AFTER>(sum, widen(factor.item[i]), widen(summand.item[i]), widen(other.item[i])));
    }
    *(Pack<T, V>*)(y + pixel * s.y_step + channel) = value;
}
