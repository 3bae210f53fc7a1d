// Pooling over windows, one result a thread, in any layout: channels innermost or outermost is a matter of strides.

struct Window {
    int32 results;
    // Extents of the result in the order of its memory (batch, channels and three spatial axes), each with the axis of
    // `x_stride` that it belongs to.
    int32 size[5], axis[5];
    int32 x_stride[5];
    int32 in[3], kernel[3], stride[3], dilation[3], begin[3];
    // Where the padding ends that an average counts.
    int32 end[3];
};

template <typename T, bool AVERAGE, bool COUNTS_PADDING>
__device__ void pool(T* y, const T* x, const Window& s) {
    typedef typename Wide<T>::type W;
    const uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= s.results) return;
    uint32 rest = at;
    int32 place[5];
    for (int32 i = 4; i >= 0; i--) {
        place[s.axis[i]] = rest % s.size[i];
        rest /= s.size[i];
    }
    x += (uint64)place[0] * s.x_stride[0] + (uint64)place[1] * s.x_stride[1];
    W result = AVERAGE ? (W)0 : (W)-__longlong_as_double(0x7ff0000000000000ll);
    int32 taken = 0;
    for (int32 a = 0; a < s.kernel[0]; a++) {
        const int32 i0 = place[2] * s.stride[0] + a * s.dilation[0] - s.begin[0];
        for (int32 b = 0; b < s.kernel[1]; b++) {
            const int32 i1 = place[3] * s.stride[1] + b * s.dilation[1] - s.begin[1];
            for (int32 c = 0; c < s.kernel[2]; c++) {
                const int32 i2 = place[4] * s.stride[2] + c * s.dilation[2] - s.begin[2];
                const bool inside = i0 >= 0 && i0 < s.in[0] && i1 >= 0 && i1 < s.in[1] && i2 >= 0 && i2 < s.in[2];
                if (AVERAGE && COUNTS_PADDING) taken += i0 < s.end[0] && i1 < s.end[1] && i2 < s.end[2];
                if (!inside) continue;
                const uint64 from = (uint64)i0 * s.x_stride[2] + (uint64)i1 * s.x_stride[3] + (uint64)i2 * s.x_stride[4];
                const W value = widen(x[from]);
                if (AVERAGE) {
                    result += value;
                    if (!COUNTS_PADDING) taken++;
                } else {
                    result = f_max(result, value);
                }
            }
        }
    }
    y[at] = Narrow<T>::from(AVERAGE ? result / (W)taken : result);
}
