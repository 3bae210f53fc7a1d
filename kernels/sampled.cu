// Images read at places that data tells: GridSample, RoiAlign and MaxRoiPool. A thread works on some channels of one place.

struct Spots {
    uint32 items;
    // Places of an image of the result, and channels in groups of as many as a thread works on.
    Divisor places, groups;
    int32 channels;
    // Strides in elements: of images, channels and axes of the source; of images, channels and places of the result.
    int32 x_image, x_channel, x_axis[3];
    int32 y_image, y_channel, y_place;
    // Extents of the source.
    int32 images, size[3];
};

// What a thread works on. LAST: channels are innermost, and K of them lie side by side.
template <typename T, int K, bool LAST>
struct Spot {
    typedef typename Wide<T>::type W;
    uint32 image, place;
    int32 channel, left;

    __device__ __forceinline__ Spot(uint32 item, const Spots& s) {
        uint32 group;
        if (LAST) {
            group = s.groups.take(item);
            place = s.places.take(item);
        } else {
            place = s.places.take(item);
            group = s.groups.take(item);
        }
        image = item;
        channel = group * K;
        left = s.channels - channel;
    }

    // The channels of an element of an image.
    __device__ __forceinline__ void read(W (&values)[K], const T* x, const Spots& s) const {
        if (LAST) {
            const Pack<T, K> pack = fetch<K>(x + channel);
#pragma unroll
            for (int32 k = 0; k < K; k++) values[k] = widen(pack.item[k]);
        } else {
            x += (uint64)channel * s.x_channel;
#pragma unroll
            for (int32 k = 0; k < K; k++) values[k] = k < left ? widen(x[(uint64)k * s.x_channel]) : (W)0;
        }
    }

    __device__ __forceinline__ void write(T* y, const W (&values)[K], const Spots& s) const {
        y += (uint64)image * s.y_image + (uint64)place * s.y_place + (uint64)channel * s.y_channel;
        if (LAST) {
            Pack<T, K> pack;
#pragma unroll
            for (int32 k = 0; k < K; k++) pack.item[k] = Narrow<T>::from(values[k]);
            store<K>(y, pack);
        } else {
#pragma unroll
            for (int32 k = 0; k < K; k++) {
                if (k < left) y[(uint64)k * s.y_channel] = Narrow<T>::from(values[k]);
            }
        }
    }
};

#define ZEROS 0
#define BORDER 1
#define REFLECTION 2
// The border for each neighbour of a place, and not for the place before.
#define BORDER_OF_TAPS 3

struct Sampler {
    int32 padding, align_corners;
    Spots spots;

    // The outermost places that are inside.
    template <typename C>
    __device__ __forceinline__ C low() const {
        return align_corners ? (C)0 : (C)-0.5;
    }
    template <typename C>
    __device__ __forceinline__ C high(int32 size) const {
        return (C)size - (align_corners ? (C)1 : (C)0.5);
    }

    // A place mirrored at the borders until it is between them.
    template <typename C>
    __device__ __forceinline__ C reflected(C x, int32 size) const {
        const C from = low<C>(), range = high<C>(size) - from;
        if (!(range > (C)0) || !isfinite(x)) return from < (C)0 ? (C)0 : from;
        C away = fmod(x - from, (C)2 * range);
        if (away < (C)0) away += (C)2 * range;
        return from + (away > range ? (C)2 * range - away : away);
    }

    // The element at an index that may be outside; -1: none.
    template <typename C>
    __device__ __forceinline__ int32 element(C i, int32 size) const {
        const C last = (C)(size - 1);
        if (i >= (C)0 && i <= last) return (int32)i;
        if (padding == ZEROS) return -1;
        if (padding == REFLECTION) i = reflected(i, size);
        return (int32)fmin(fmax(i, (C)0), last);
    }
};

// The neighbours of a place along one axis and their weights: 1 (nearest), 2 (linear) or 4 (cubic).
template <typename C, int TAPS>
struct Along {
    int32 at[TAPS];
    C weight[TAPS];

    __device__ __forceinline__ void find(C place, int32 size, const Sampler& s) {
        const C extent = (C)size;
        C x = s.align_corners ? (place + (C)1) / (C)2 * (extent - (C)1) : ((place + (C)1) * extent - (C)1) / (C)2;
        if (TAPS == 1) x = rint(x);
        if (x < s.low<C>() || x > s.high<C>(size)) {
            if (s.padding == BORDER) x = fmin(fmax(x, (C)0), extent - (C)1);
            if (s.padding == REFLECTION) x = s.reflected(x, size);
        }
        const C base = floor(x), t = x - base;
        if (TAPS == 1) {
            at[0] = s.element(trunc(x), size);
            weight[0] = (C)1;
        } else if (TAPS == 2) {
            weight[0] = (C)1 - t;
            weight[TAPS - 1] = t;
        } else {
            weight[0] = far(t + (C)1);
            weight[1] = near(t);
            weight[TAPS - 2] = near((C)1 - t);
            weight[TAPS - 1] = far((C)2 - t);
        }
        if (TAPS > 1) {
#pragma unroll
            for (int32 k = 0; k < TAPS; k++) at[k] = s.element(base + (C)(k + 1 - TAPS / 2), size);
        }
    }

    static __device__ __forceinline__ C near(C d) { return ((C)1.25 * d - (C)2.25) * d * d + (C)1; }
    static __device__ __forceinline__ C far(C d) { return (((C)-0.75 * d + (C)3.75) * d - (C)6) * d + (C)3; }
};

// C: what places are computed in.
template <typename T, typename G, typename C, int K, bool LAST, int AXES, int TAPS>
__device__ __forceinline__ void grid_sample(T* y, const T* x, const G* grid, const Sampler& s) {
    typedef typename Wide<T>::type W;
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.spots.items) return;
    const Spot<T, K, LAST> spot(item, s.spots);
    grid += ((uint64)spot.image * s.spots.places.size + spot.place) * AXES;
    x += (uint64)spot.image * s.spots.x_image;
    Along<C, TAPS> along[AXES];
#pragma unroll
    for (int32 a = 0; a < AXES; a++) along[a].find((C)widen(grid[AXES - 1 - a]), s.spots.size[a], s);
    constexpr int32 COUNT = AXES == 1 ? TAPS : (AXES == 2 ? TAPS * TAPS : TAPS * TAPS * TAPS);
    W sums[K] = {};
#pragma unroll
    for (int32 i = 0; i < COUNT; i++) {
        C weight = (C)1;
        bool inside = true;
        const T* there = x;
        int32 rest = i;
#pragma unroll
        for (int32 a = AXES - 1; a >= 0; a--) {
            const int32 tap = rest % TAPS;
            rest /= TAPS;
            inside &= along[a].at[tap] >= 0;
            weight *= along[a].weight[tap];
            there += (int64)along[a].at[tap] * s.spots.x_axis[a];
        }
        // An element without weight may be infinite.
        if (!inside || weight == (C)0) continue;
        W values[K];
        spot.read(values, there, s.spots);
#pragma unroll
        for (int32 k = 0; k < K; k++) sums[k] += (W)weight * values[k];
    }
    spot.write(y, sums, s.spots);
}

struct Regions {
    double scale;
    // Bins along height and width; samples along each side of a bin, 0: as many as it has elements.
    int32 bins[2], ratio;
    int32 half_pixel;
    Spots spots;
};

// One side of a region: its samples.
struct Side {
    double start, bin;
    int32 samples;

    __device__ __forceinline__ Side(double from, double to, int32 bins, const Regions& s) {
        const double shift = s.half_pixel ? 0.5 : 0.0;
        start = from * s.scale - shift;
        const double extent = to * s.scale - shift - start;
        bin = (s.half_pixel ? extent : fmax(extent, 1.0)) / bins;
        samples = s.ratio > 0 ? s.ratio : (int32)fmin(fmax(ceil(bin), 0.0), 4096.0);
    }

    // Two neighbours of a sample and the weight of the second; false: it is outside.
    __device__ __forceinline__ bool find(int32 which, int32 sample, int32 size, int32 (&at)[2], double& weight) const {
        const double place = start + which * bin + (sample + 0.5) * bin / samples;
        if (!(place >= -1.0 && place <= (double)size)) return false;
        const double inside = fmax(place, 0.0);
        const int32 low = (int32)inside;
        const bool last = low + 1 >= size;
        at[0] = last ? size - 1 : low;
        at[1] = last ? size - 1 : low + 1;
        weight = last ? 0.0 : inside - low;
        return true;
    }
};

template <typename T, typename I, int K, bool LAST, bool MOST>
__device__ __forceinline__ void roi_align(T* y, const T* x, const T* rois, const I* images, const Regions& s, int64* flag) {
    typedef typename Wide<T>::type W;
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.spots.items) return;
    const Spot<T, K, LAST> spot(item, s.spots);
    int64 image = (int64)images[spot.image];
    if (image < -s.spots.images || image >= s.spots.images) return complain(flag, image);
    if (image < 0) image += s.spots.images;
    rois += (uint64)spot.image * 4;
    x += (uint64)image * s.spots.x_image;
    const Side rows(widen(rois[1]), widen(rois[3]), s.bins[0], s), columns(widen(rois[0]), widen(rois[2]), s.bins[1], s);
    const int32 row = spot.place / s.bins[1], column = spot.place % s.bins[1];
    const int32 samples = rows.samples * columns.samples;
    const double share = MOST || samples == 0 ? 1.0 : 1.0 / samples;
    W sums[K];
#pragma unroll
    for (int32 k = 0; k < K; k++) sums[k] = MOST && samples > 0 ? (W)-__longlong_as_double(0x7ff0000000000000ll) : (W)0;
    for (int32 sample = 0; sample < samples; sample++) {
        int32 i[2], j[2];
        double down, across;
        const bool inside = rows.find(row, sample / columns.samples, s.spots.size[0], i, down)
            && columns.find(column, sample % columns.samples, s.spots.size[1], j, across);
#pragma unroll
        for (int32 n = 0; n < 4; n++) {
            const double weight = inside ? (n / 2 ? down : 1.0 - down) * (n % 2 ? across : 1.0 - across) * share : 0.0;
            W values[K] = {};
            // An element without weight may be infinite, and a sample outside counts as zero.
            if (weight != 0.0) {
                spot.read(values, x + (uint64)i[n / 2] * s.spots.x_axis[0] + (uint64)j[n % 2] * s.spots.x_axis[1], s.spots);
            }
#pragma unroll
            for (int32 k = 0; k < K; k++) {
                const W value = (W)weight * values[k];
                sums[k] = MOST ? fmax(sums[k], value) : sums[k] + value;
            }
        }
    }
    spot.write(y, sums, s.spots);
}

// Where a bin of a region begins or ends along one side.
__device__ __forceinline__ int32 edge(double from, double to, double scale, int32 bin, int32 bins, int32 size, bool end) {
    const double start = round(from * scale), each = fmax(round(to * scale) - start + 1.0, 1.0) / bins;
    const double at = end ? ceil((bin + 1) * each) : floor(bin * each);
    return (int32)fmin(fmax(at + start, 0.0), (double)size);
}

template <typename T, int K, bool LAST>
__device__ __forceinline__ void max_roi_pool(T* y, const T* x, const T* rois, const Regions& s, int64* flag) {
    typedef typename Wide<T>::type W;
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.spots.items) return;
    const Spot<T, K, LAST> spot(item, s.spots);
    rois += (uint64)spot.image * 5;
    int64 image = (int64)widen(rois[0]);
    if (image < -s.spots.images || image >= s.spots.images) return complain(flag, image);
    if (image < 0) image += s.spots.images;
    x += (uint64)image * s.spots.x_image;
    const int32 row = spot.place / s.bins[1], column = spot.place % s.bins[1];
    const double x1 = widen(rois[1]), y1 = widen(rois[2]), x2 = widen(rois[3]), y2 = widen(rois[4]);
    const int32 top = edge(y1, y2, s.scale, row, s.bins[0], s.spots.size[0], false);
    const int32 bottom = edge(y1, y2, s.scale, row, s.bins[0], s.spots.size[0], true);
    const int32 left = edge(x1, x2, s.scale, column, s.bins[1], s.spots.size[1], false);
    const int32 right = edge(x1, x2, s.scale, column, s.bins[1], s.spots.size[1], true);
    W most[K] = {};
    for (int32 i = top; i < bottom; i++) {
        for (int32 j = left; j < right; j++) {
            W values[K];
            spot.read(values, x + (uint64)i * s.spots.x_axis[0] + (uint64)j * s.spots.x_axis[1], s.spots);
            const bool first = i == top && j == left;
#pragma unroll
            for (int32 k = 0; k < K; k++) most[k] = first ? values[k] : f_max(most[k], values[k]);
        }
    }
    spot.write(y, most, s.spots);
}
