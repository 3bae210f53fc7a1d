// Convolutions and products of 8 bits on plain arithmetic, one result or a few neighbours a thread; and the
// patches of an image, of which a product makes a convolution. Channels are innermost everywhere. Behind
// `quantized.cuh` and a `Tail`.

struct Window {
    int32 channels, results, groups, x_step, y_step;
    // From the weights of one result to those of the next.
    int32 pitch;
    // What stands outside of the image.
    int32 zero;
    int32 in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
};

// Calls `take(pixel, inside)` for each element of the kernel, with the pixel of the image that it sees for a place of the result.
template <typename Take>
__device__ __forceinline__ void each_tap(const Window& s, uint64 place, const Take& take) {
    int32 first[3];
    #pragma unroll
    for (int32 axis = 2; axis >= 0; axis--) {
        first[axis] = (int32)(place % s.out[axis]) * s.stride[axis] - s.begin[axis];
        place /= s.out[axis];
    }
    for (int32 a = 0; a < s.kernel[0]; a++) {
        const int32 i = first[0] + a * s.dilation[0];
        for (int32 b = 0; b < s.kernel[1]; b++) {
            const int32 j = first[1] + b * s.dilation[1];
            for (int32 c = 0; c < s.kernel[2]; c++) {
                const int32 k = first[2] + c * s.dilation[2];
                const bool inside =
                    (uint32)i < (uint32)s.in[0] && (uint32)j < (uint32)s.in[1] && (uint32)k < (uint32)s.in[2];
                take(((place * s.in[0] + i) * s.in[1] + j) * s.in[2] + k, inside);
            }
        }
    }
}

// One result a thread, any convolution.
template <typename X, typename W, typename Places>
__device__ __forceinline__ void convolve(Y0* y, const X* x, const W* w, const Channels& channels, const Tail& tail,
                                         const Window& s, const Places& places, uint64 items) {
    typedef typename SumOf<X>::type Sum;
    after_previous();
    const uint64 at = (uint64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= items) return;
    const int32 channel = at % s.results, inputs = s.channels / s.groups;
    const uint64 place = at / s.results;
    const W* row = w + (int64)channel * s.pitch;
    const X* const from = x + channel / (s.results / s.groups) * inputs;
    Sum sum = 0;
    each_tap(s, place, [&](uint64 pixel, bool inside) {
        const X* seen = from + pixel * s.x_step;
        for (int32 n = 0; n < inputs; n++) sum += (inside ? (Sum)widen(seen[n]) : (Sum)s.zero) * (Sum)widen(row[n]);
        row += inputs;
    });
    const int32 own = places.channel(channel);
    const uint64 pixel = places.pixel(place, channel), to = pixel * places.channels(s.results) + own;
    y[pixel * s.y_step + own] = tail.one(channels.scaled(sum, channel), to, own);
}

// Each channel by itself, four neighbours a thread.
template <typename X, typename W>
__device__ __forceinline__ void convolve_depthwise(Y0* y, const X* x, const W* w, const Channels& channels,
                                                   const Tail& tail, const Window& s, uint64 items) {
    after_previous();
    const uint64 number = (uint64)blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= items) return;
    const int32 fours = s.results / 4, channel = (int32)(number % fours) * 4;
    const uint64 place = number / fours;
    typedef typename SumOf<X>::type Sum;
    Sum sums[4] = {};
    int32 tap = 0;
    each_tap(s, place, [&](uint64 pixel, bool inside) {
        Pack<X, 4> four;
        if (inside) four = *(const Pack<X, 4>*)(x + pixel * s.x_step + channel);
        #pragma unroll
        for (int32 k = 0; k < 4; k++) {
            sums[k] += (inside ? (Sum)widen(four.item[k]) : (Sum)s.zero) * (Sum)widen(w[(channel + k) * s.pitch + tap]);
        }
        tap++;
    });
    const uint64 at = place * s.results + channel;
    #pragma unroll
    for (int32 k = 0; k < 4; k++) {
        y[place * s.y_step + channel + k] = tail.one(channels.scaled(sums[k], channel + k), at + k, channel + k);
    }
}

// What each place of the result sees, one after another: the channels of all elements of the kernel, and zeros up to the pitch.
template <typename X>
__device__ __forceinline__ void lay_patches(X* patches, const X* x, const Window& s, uint64 items) {
    after_previous();
    const uint64 number = (uint64)blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= items) return;
    const int32 packs = s.pitch / 16, first = (int32)(number % packs) * 16;
    const uint64 place = number / packs;
    uint64 rest = place;
    int32 corner[3];
    #pragma unroll
    for (int32 axis = 2; axis >= 0; axis--) {
        corner[axis] = (int32)(rest % s.out[axis]) * s.stride[axis] - s.begin[axis];
        rest /= s.out[axis];
    }
    const int32 width = s.kernel[2], plane = s.kernel[1] * width, terms = s.kernel[0] * plane * s.channels;
    const int32 tap = first / s.channels;
    int32 channel = first - tap * s.channels, a = tap / plane, b = tap % plane / width, c = tap % width;
    // The pixel that an element of the kernel sees, if there is one.
    const X* seen;
    const auto look = [&]() {
        const int32 i = corner[0] + a * s.dilation[0], j = corner[1] + b * s.dilation[1], k = corner[2] + c * s.dilation[2];
        const bool inside = (uint32)i < (uint32)s.in[0] && (uint32)j < (uint32)s.in[1] && (uint32)k < (uint32)s.in[2];
        seen = inside ? x + (((rest * s.in[0] + i) * s.in[1] + j) * s.in[2] + k) * s.x_step : nullptr;
    };
    look();
    Pack<X, 16> pack;
    const uint8 zero = (uint8)s.zero;
    const X beyond = *(const X*)&zero;
    #pragma unroll
    for (int32 n = 0; n < 16; n++) {
        pack.item[n] = first + n >= terms ? X{} : seen ? seen[channel] : beyond;
        if (++channel < s.channels) continue;
        channel = 0;
        if (++c == width) {
            c = 0;
            if (++b == s.kernel[1]) {
                b = 0;
                a++;
            }
        }
        look();
    }
    *(Pack<X, 16>*)(patches + place * s.pitch + first) = pack;
}
