// Small convolutions on tensor cores, with bias, residual, activation, and what comes after that. Behind `pixels.cuh`.

// What is read besides input and weights; null where it is not there.
template <typename T>
struct Sides {
    const T *bias, *residual, *scale, *shift;
};

// What is read for the results that a thread writes, while the sums are taken: their channels are the same for all.
template <typename L, typename T, int AFTER>
struct Follows {
    Pack<T, 8> biases, factors, summands, others[L::EACH];

    __device__ __forceinline__ void read(const Sides<T>& sides, const Place& place, const Shape& s) {
        each_eight<L>([&](int32 number, int32 row, int32 column) {
            const int64 pixel = place.pixel(row, s);
            const int32 channel = place.first + column;
            if (number == 0 && channel < s.results) {
                if (sides.bias) biases = *(const Pack<T, 8>*)(sides.bias + channel);
                if constexpr ((AFTER & After::SCALE) != 0) factors = *(const Pack<T, 8>*)(sides.scale + channel);
                if constexpr ((AFTER & After::SHIFT) != 0) summands = *(const Pack<T, 8>*)(sides.shift + channel);
            }
            if (pixel < 0 || channel >= s.results) return;
            if (sides.residual) others[number] = *(const Pack<T, 8>*)(sides.residual + pixel * s.residual_step + channel);
        });
    }

    // The same of a few channels, one by one.
    __device__ __forceinline__ void read_some(const Sides<T>& sides, int64 pixel, int32 channel, int32 number, const Shape& s) {
        #pragma unroll
        for (int32 k = 0; k < 8; k++) {
            if (channel + k >= s.results) return;
            if (sides.bias) biases.item[k] = sides.bias[channel + k];
            if constexpr ((AFTER & After::SCALE) != 0) factors.item[k] = sides.scale[channel + k];
            if constexpr ((AFTER & After::SHIFT) != 0) summands.item[k] = sides.shift[channel + k];
            if (sides.residual) others[number].item[k] = sides.residual[pixel * s.residual_step + channel + k];
        }
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
        case 1: return each(x, [](float v) { return f_relu(v); });
        case 9: return each(x, [&](float v) { return f_leaky_relu(v, numbers[0]); });
        case 2: return each(x, [](float v) { return f_fast_sigmoid(v); });
        case 3: return each(x, [](float v) { return f_fast_silu(v); });
        case 4: return each(x, [](float v) { return f_fast_tanh(v); });
        case 5: return each(x, [](float v) { return f_fast_gelu(v); });
        case 6: return each(x, [&](float v) { return f_at_most(f_at_least(v, numbers[0]), numbers[1]); });
        case 7: return each(x, [&](float v) { return f_hard_sigmoid(v, numbers[0], numbers[1]); });
        case 8: return each(x, [](float v) { return f_hard_swish(v); });
    }
}

// The residual may be `y`. AFTER is what is done behind the activation, as `f_after` knows it; HELD says that nobody writes the weights
// any more.
template <typename L, int AFTER, bool HELD, typename T>
__device__ __forceinline__ void convolve(T* y, const T* x, const T* w, const Sides<T>& sides, const Shape& s) {
    extern __shared__ __align__(1024) uint8 memory[];
    const Place place = Place::of_block<L>(s);
    const bool wide = s.results % 8 == 0 && s.y_step % 8 == 0 && s.residual_step % 8 == 0;
    Follows<L, T, AFTER> follows;
    const auto while_loading = [&]() {
        if (wide) follows.read(sides, place, s);
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
        Pack<T, 8> pack;
        if (!wide) follows.read_some(sides, pixel, channel, number, s);
        const Pack<T, 8>& other = follows.others[number];
        #pragma unroll
        for (int32 k = 0; k < 8; k++) {
            if (sides.bias) eight[k] += widen(follows.biases.item[k]);
            if (sides.residual && (AFTER & After::RESIDUAL) == 0) eight[k] += widen(other.item[k]);
        }
        activate(eight, s.activation, s.numbers);
        #pragma unroll
        for (int32 k = 0; k < 8; k++) {
            const float factor = AFTER & After::SCALE ? widen(follows.factors.item[k]) : 1.0f;
            const float summand = AFTER & After::SHIFT ? widen(follows.summands.item[k]) : 0.0f;
            const float last = AFTER & After::RESIDUAL ? widen(other.item[k]) : 0.0f;
            pack.item[k] = Narrow<T>::from(f_after<AFTER>(eight[k], factor, summand, last));
        }
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
