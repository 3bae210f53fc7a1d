// A convolution whose taps lie where offsets say. A thread gives OUTPUTS channels of one place: what it reads between elements
// serves them all.

#define OUTPUTS 8

struct Deformed {
    uint32 items;
    // Places and width of the result, OUTPUTS of a group of channels, and groups.
    Divisor places, width, chunks, groups;
    // Channels of the input and outputs of a group; channels that share offsets, and how many such groups there are.
    int32 channels, outputs, per_offset, offsets;
    int32 size[2], kernel[2], stride[2], dilation[2], begin[2];
};

// Between four elements of a plane; what is outside is zero.
template <typename T, typename W>
__device__ __forceinline__ W between(const T* plane, const int32 (&size)[2], W y, W x) {
    const W top = floor(y), left = floor(x), down = y - top, across = x - left;
    W sum = (W)0;
#pragma unroll
    for (int32 n = 0; n < 4; n++) {
        const W row = top + (W)(n / 2), column = left + (W)(n % 2);
        const W weight = (n / 2 ? down : (W)1 - down) * (n % 2 ? across : (W)1 - across);
        const bool inside = row >= (W)0 && column >= (W)0 && row < (W)size[0] && column < (W)size[1];
        // An element without weight may be infinite.
        if (inside && weight != (W)0) sum += weight * widen(plane[(uint64)row * size[1] + (uint64)column]);
    }
    return sum;
}

template <typename T, bool BIASED, bool MASKED>
__device__ __forceinline__ void deform_conv(T* y, const T* x, const T* w, const T* offset, const T* bias, const T* mask,
                                            const Deformed& s) {
    typedef typename Wide<T>::type W;
    uint32 rest = blockIdx.x * blockDim.x + threadIdx.x;
    if (rest >= s.items) return;
    const uint32 place = s.places.take(rest), chunk = s.chunks.take(rest), group = s.groups.take(rest), image = rest;
    uint32 row = place;
    const uint32 column = s.width.take(row);
    const int32 taps = s.kernel[0] * s.kernel[1], first = group * s.outputs + chunk * OUTPUTS;
    const int32 left = min(s.outputs - (int32)chunk * OUTPUTS, OUTPUTS);
    const int32 top = (int32)row * s.stride[0] - s.begin[0], begin = (int32)column * s.stride[1] - s.begin[1];
    const uint64 plane = (uint64)s.size[0] * s.size[1], weights = (uint64)s.channels * taps;
    const uint32 places = s.places.size;
    W sums[OUTPUTS];
#pragma unroll
    for (int32 k = 0; k < OUTPUTS; k++) sums[k] = BIASED && k < left ? widen(bias[first + k]) : (W)0;
    w += first * weights;
    for (int32 c = 0; c < s.channels; c++) {
        const int32 channel = group * s.channels + c;
        const uint64 owner = (uint64)image * s.offsets + channel / s.per_offset;
        const T* from = x + ((uint64)image * s.groups.size * s.channels + channel) * plane;
        for (int32 tap = 0; tap < taps; tap++) {
            const uint64 moved = owner * taps + tap;
            const W down = (W)(top + tap / s.kernel[1] * s.dilation[0]) + widen(offset[moved * 2 * places + place]);
            const W across = (W)(begin + tap % s.kernel[1] * s.dilation[1]) + widen(offset[(moved * 2 + 1) * places + place]);
            W value = between<T, W>(from, s.size, down, across);
            if (MASKED) value *= widen(mask[moved * places + place]);
#pragma unroll
            for (int32 k = 0; k < OUTPUTS; k++) {
                if (k < left) sums[k] += widen(w[k * weights + c * taps + tap]) * value;
            }
        }
    }
    y += ((uint64)image * s.groups.size * s.outputs + first) * places + place;
#pragma unroll
    for (int32 k = 0; k < OUTPUTS; k++) {
        if (k < left) y[(uint64)k * places] = Narrow<T>::from(sums[k]);
    }
}
