// Local response normalization: an element a thread.

struct Around {
    double scale, bias, beta;
    // The channels, and how far one lies from the next.
    int32 elements, channels, step;
    // How many channels before and after count.
    int32 before, after;
};

template <typename T>
__device__ __forceinline__ void lrn(T* y, const T* x, const Around& s) {
    typedef typename Wide<T>::type W;
    const uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= s.elements) return;
    const int32 channel = at / s.step % s.channels;
    const int32 from = -min(channel, s.before), to = min(s.channels - 1 - channel, s.after);
    W sum = (W)0;
    #pragma unroll 4
    for (int32 c = from; c <= to; c++) sum += f_square(widen(x[(int64)at + (int64)c * s.step]));
    const W base = (W)s.bias + (W)s.scale * sum;
    const W divisor = s.beta == 0.75 ? sqrt(base) * sqrt(sqrt(base)) : pow(base, (W)s.beta);
    y[at] = Narrow<T>::from(widen(x[at]) / divisor);
}
