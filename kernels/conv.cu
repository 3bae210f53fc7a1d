// A convolution of any sort, one result a thread; all tensors have channels innermost. For what cuDNN has no engine.

struct Shape {
    int32 batch, channels, results, groups, bias, residual, activation;
    float slope;
    int32 in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
};

template <typename W>
__device__ __forceinline__ W activated(W x, int32 activation, float slope) {
    switch (activation) {
        case 1: return f_leaky_relu(x, (W)slope);
        case 2: return f_sigmoid(x);
        case 3: return f_silu(x);
        case 4: return tanh(x);
        case 5: return f_gelu(x);
        default: return x;
    }
}

template <typename T>
__device__ void convolve(T* y, const T* x, const T* w, const T* bias, const T* residual, const Shape& s) {
    typedef typename Wide<T>::type W;
    const uint64 at = (uint64)blockIdx.x * blockDim.x + threadIdx.x;
    const uint64 plane = (uint64)s.out[0] * s.out[1] * s.out[2];
    if (at >= plane * s.batch * s.results) return;
    const int32 m = at % s.results;
    uint64 place = at / s.results;
    int32 o[3];
    for (int32 axis = 2; axis >= 0; axis--) {
        o[axis] = place % s.out[axis];
        place /= s.out[axis];
    }
    const int32 n = place, per_group = s.channels / s.groups, first = m / (s.results / s.groups) * per_group;
    W sum = 0;
    for (int32 a = 0; a < s.kernel[0]; a++) {
        const int32 i0 = o[0] * s.stride[0] + a * s.dilation[0] - s.begin[0];
        if (i0 < 0 || i0 >= s.in[0]) continue;
        for (int32 b = 0; b < s.kernel[1]; b++) {
            const int32 i1 = o[1] * s.stride[1] + b * s.dilation[1] - s.begin[1];
            if (i1 < 0 || i1 >= s.in[1]) continue;
            for (int32 c = 0; c < s.kernel[2]; c++) {
                const int32 i2 = o[2] * s.stride[2] + c * s.dilation[2] - s.begin[2];
                if (i2 < 0 || i2 >= s.in[2]) continue;
                const T* px = x + ((((uint64)n * s.in[0] + i0) * s.in[1] + i1) * s.in[2] + i2) * s.channels + first;
                const T* pw = w + ((((uint64)m * s.kernel[0] + a) * s.kernel[1] + b) * s.kernel[2] + c) * per_group;
                for (int32 k = 0; k < per_group; k++) sum += widen(px[k]) * widen(pw[k]);
            }
        }
    }
    if (s.bias) sum += widen(bias[m]);
    if (s.residual) sum += widen(residual[at]);
    y[at] = Narrow<T>::from(activated(sum, s.activation, s.slope));
}
