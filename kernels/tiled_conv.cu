// Small convolutions on tensor cores, with bias, residual and activation. Behind `pixels.cuh`.

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
__device__ __forceinline__ void activate(float (&x)[8], int32 activation, const float (&numbers)[2]) {
    switch (activation) {
        // Not a product with 0, which of an infinite number is none.
        case 1: return each(x, [&](float v) { return numbers[0] == 0.0f ? f_relu(v) : f_leaky_relu(v, numbers[0]); });
        case 2: return each(x, [](float v) { return f_fast_sigmoid(v); });
        case 3: return each(x, [](float v) { return f_fast_silu(v); });
        case 4: return each(x, [](float v) { return f_fast_tanh(v); });
        case 5: return each(x, [](float v) { return f_fast_gelu(v); });
        case 6: return each(x, [&](float v) { return f_at_most(f_at_least(v, numbers[0]), numbers[1]); });
        case 7: return each(x, [&](float v) { return f_hard_sigmoid(v, numbers[0], numbers[1]); });
        case 8: return each(x, [](float v) { return f_hard_swish(v); });
    }
}

// `residual` may be `y`. HELD says that nobody writes the weights any more.
template <typename L, bool HELD, typename T>
__device__ __forceinline__ void convolve(T* y, const T* x, const T* w, const T* bias, const T* residual, const Shape& s) {
    extern __shared__ __align__(1024) uint8 memory[];
    const Place place = Place::of_block<L>(s);
    const bool wide = s.results % 8 == 0 && s.y_step % 8 == 0 && s.residual_step % 8 == 0;
    Follows<L, T> follows;
    const auto while_loading = [&]() {
        if (wide) follows.read(bias, residual, place, s);
    };
    float sums[L::WM / 16][L::WN / 8][4] = {};
    sum_pixels<L, HELD, false, Warps<L, T>>(sums, memory, x, w, place, s, 0, while_loading);
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
        activate(eight, s.activation, s.numbers);
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
