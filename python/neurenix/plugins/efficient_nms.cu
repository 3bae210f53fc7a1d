// EfficientNMS: a block of THREADS threads works on one image. HALF says whether elements are halves, SCORES how many candidates
// are compared with each other at most. NVRTC has no headers: halves are read and rounded by instructions of the GPU.

typedef unsigned long long Key;

#if HALF
typedef unsigned short Element;
__device__ __forceinline__ float wide(Element bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ __forceinline__ Element narrow(float value) {
    Element bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#else
typedef float Element;
__device__ __forceinline__ float wide(Element value) { return value; }
__device__ __forceinline__ Element narrow(float value) { return value; }
#endif

// What is calculated is rounded to the type of the elements after each step, and never fused.
__device__ __forceinline__ float rounded(float value) { return wide(narrow(value)); }
__device__ __forceinline__ float plus(float a, float b) { return rounded(__fadd_rn(a, b)); }
__device__ __forceinline__ float minus(float a, float b) { return rounded(__fsub_rn(a, b)); }
__device__ __forceinline__ float times(float a, float b) { return rounded(__fmul_rn(a, b)); }

struct Box {
    float v[4];
};

struct Shape {
    int boxes, classes, most, background, sigmoid, agnostic, centred, anchors, each_class, each_image;
    float least, overlap;
};

// Scores that are greater, and of equal ones those that come first, have greater keys. No key is 0.
__device__ __forceinline__ Key key_of(float score, unsigned at) {
    const unsigned bits = __float_as_uint(__fadd_rn(score, 0.0f));
    const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (Key)ordered << 32 | (0xffffffffu - at);
}
__device__ __forceinline__ unsigned place_of(Key key) { return 0xffffffffu - (unsigned)key; }

// Calls `use` with the key of each score that counts. Several loads are under way at a time.
template <typename Use>
__device__ __forceinline__ void each_candidate(const Element* scores, const Shape& s, Use use) {
    const unsigned count = (unsigned)s.boxes * s.classes;
    for (unsigned base = threadIdx.x; base < count; base += 8 * THREADS) {
        Element loaded[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (base + i * THREADS < count) loaded[i] = scores[base + i * THREADS];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned at = base + i * THREADS;
            if (at >= count || !(wide(loaded[i]) >= s.least) || (int)(at % s.classes) == s.background) continue;
            use(key_of(wide(loaded[i]), at));
        }
    }
}

// The least key of the SCORES greatest: byte by byte, by how many keys have which.
__device__ Key least_of_greatest(const Element* scores, const Shape& s) {
    __shared__ int found[256];
    __shared__ Key prefix;
    __shared__ int left, done;
    if (threadIdx.x == 0) prefix = 0, left = SCORES, done = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += THREADS) found[i] = 0;
        __syncthreads();
        const Key known = prefix;
        each_candidate(scores, s, [&](Key key) {
            if (shift == 56 || (key ^ known) >> (shift + 8) == 0) atomicAdd(&found[key >> shift & 255], 1);
        });
        __syncthreads();
        if (threadIdx.x == 0) {
            int bin = 255;
            for (; bin > 0 && found[bin] < left; bin--) left -= found[bin];
            prefix |= (Key)bin << shift;
            done = found[bin] == left;
        }
        __syncthreads();
        if (done) break;
    }
    return prefix;
}

// Sorts the keys, a power of two, the greatest first.
__device__ void sort(Key* keys, int count) {
    for (int size = 2; size <= count; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            for (int i = threadIdx.x; i < count / 2; i += THREADS) {
                const int a = i / step * step * 2 + i % step, b = a + step;
                const Key x = keys[a], y = keys[b];
                if ((x < y) == ((a & size) == 0)) keys[a] = y, keys[b] = x;
            }
            __syncthreads();
        }
    }
}

__device__ __forceinline__ void order(Box& box) {
    for (int axis = 0; axis < 2; axis++) {
        const float low = box.v[axis], high = box.v[axis + 2];
        box.v[axis] = low > high ? high : low;
        box.v[axis + 2] = low > high ? low : high;
    }
}

__device__ __forceinline__ Box load(const Element* from) {
    Box box;
    for (int i = 0; i < 4; i++) box.v[i] = wide(from[i]);
    return box;
}

// The corners of a box, moved from its anchor where there are anchors.
__device__ Box corners(const Element* at, const Element* anchor_at, const Shape& s) {
    Box box = load(at);
    if (s.anchors) {
        Box anchor = load(anchor_at);
        if (!s.centred) {
            order(box), order(anchor);
            for (int i = 0; i < 4; i++) box.v[i] = plus(box.v[i], anchor.v[i]);
        } else {
            for (int i = 0; i < 2; i++) {
                box.v[i] = plus(times(box.v[i], anchor.v[i + 2]), anchor.v[i]);
                box.v[i + 2] = times(anchor.v[i + 2], rounded(expf(box.v[i + 2])));
            }
        }
    }
    if (!s.centred) return box;
    Box result;
    for (int i = 0; i < 2; i++) {
        const float half = times(box.v[i + 2], 0.5f);
        result.v[i] = minus(box.v[i], half);
        result.v[i + 2] = plus(box.v[i], half);
    }
    return result;
}

__device__ __forceinline__ float area(const Box& box) {
    const float height = minus(box.v[2], box.v[0]), width = minus(box.v[3], box.v[1]);
    return height <= 0.0f || width <= 0.0f ? 0.0f : __fmul_rn(height, width);
}

// The part of two boxes that they share.
__device__ __forceinline__ float overlap(Box a, Box b) {
    order(a), order(b);
    Box both;
    for (int i = 0; i < 2; i++) {
        both.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
        both.v[i + 2] = a.v[i + 2] < b.v[i + 2] ? a.v[i + 2] : b.v[i + 2];
    }
    const float shared = area(both);
    if (shared <= 0.0f) return 0.0f;
    const float all = __fsub_rn(__fadd_rn(area(a), area(b)), shared);
    return all <= 0.0f ? 0.0f : __fdiv_rn(shared, all);
}

// The candidates of an image, sorted, and how many there are.
__device__ int candidates(const Element* scores, const Shape& s, Key* keys) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    each_candidate(scores, s, [&](Key key) {
        const int at = atomicAdd(&count, 1);
        if (at < SCORES) keys[at] = key;
    });
    __syncthreads();
    if (count > SCORES) {
        const Key least = least_of_greatest(scores, s);
        __syncthreads();
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        each_candidate(scores, s, [&](Key key) {
            if (key >= least) keys[atomicAdd(&count, 1)] = key;
        });
        __syncthreads();
    }
    int padded = 2;
    while (padded < count) padded *= 2;
    for (int i = count + threadIdx.x; i < padded; i += THREADS) keys[i] = 0;
    __syncthreads();
    sort(keys, padded);
    return count;
}

__device__ void suppress(const Element* boxes, const Element* scores, const Element* anchors, int* counts, Element* kept_boxes,
                         Element* kept_scores, int* kept_classes, const Shape& s) {
    constexpr int SLOTS = SCORES / THREADS;
    __shared__ Key keys[SCORES];
    __shared__ unsigned char dropped[SCORES];
    __shared__ Box best;
    const unsigned image = blockIdx.x, thread = threadIdx.x;
    scores += (unsigned long long)image * s.boxes * s.classes;
    boxes += (unsigned long long)image * s.boxes * (s.each_class ? s.classes : 1) * 4;
    anchors += s.each_image ? (unsigned long long)image * s.boxes * 4 : 0;
    kept_boxes += (unsigned long long)image * s.most * 4;
    kept_scores += (unsigned long long)image * s.most;
    kept_classes += (unsigned long long)image * s.most;
    for (int i = thread; i < s.most * 4; i += THREADS) kept_boxes[i] = (Element)0;
    for (int i = thread; i < s.most; i += THREADS) kept_scores[i] = (Element)0, kept_classes[i] = 0;
    const int count = candidates(scores, s, keys);

    // Each thread keeps the boxes of its candidates.
    Box mine[SLOTS];
    int classes[SLOTS];
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        const int i = slot * THREADS + thread;
        if (i >= count) continue;
        const unsigned at = place_of(keys[i]), box = at / s.classes;
        classes[slot] = (int)(at % s.classes);
        mine[slot] = corners(boxes + (unsigned long long)(s.each_class ? at : box) * 4, anchors + (unsigned long long)box * 4, s);
        dropped[i] = 0;
    }
    __syncthreads();
    int kept = 0;
    for (int i = 0; i < count && kept < s.most; i++) {
        if (dropped[i]) continue;
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++) {
            if (slot * THREADS + (int)thread != i) continue;
            best = mine[slot];
            const float score = wide(scores[place_of(keys[i])]);
            const float odds = s.sigmoid ? rounded(expf(-score)) : 0.0f;
            kept_scores[kept] = narrow(s.sigmoid ? __fdiv_rn(1.0f, plus(1.0f, odds)) : score);
            kept_classes[kept] = classes[slot];
            for (int k = 0; k < 4; k++) kept_boxes[kept * 4 + k] = narrow(mine[slot].v[k]);
        }
        kept++;
        __syncthreads();
        const int its_class = (int)(place_of(keys[i]) % s.classes);
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++) {
            const int j = slot * THREADS + thread;
            if (j <= i || j >= count || dropped[j]) continue;
            if (!s.agnostic && classes[slot] != its_class) continue;
            if (overlap(mine[slot], best) >= s.overlap) dropped[j] = 1;
        }
        __syncthreads();
    }
    if (thread == 0) counts[image] = kept;
}

#define PARAMETERS                                                                                                                \
    int *counts, Element *kept_boxes, Element *kept_scores, int *kept_classes, int boxes_, int classes, int most, int background, \
        int sigmoid, int agnostic, int centred, int each_class, int each_image, float least, float overlap_

extern "C" __global__ void __launch_bounds__(THREADS) efficient_nms(const Element* boxes, const Element* scores, PARAMETERS) {
    const Shape s = {boxes_, classes, most, background, sigmoid, agnostic, centred, 0, each_class, each_image, least, overlap_};
    suppress(boxes, scores, boxes, counts, kept_boxes, kept_scores, kept_classes, s);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    efficient_nms_of_anchors(const Element* boxes, const Element* scores, const Element* anchors, PARAMETERS) {
    const Shape s = {boxes_, classes, most, background, sigmoid, agnostic, centred, 1, each_class, each_image, least, overlap_};
    suppress(boxes, scores, anchors, counts, kept_boxes, kept_scores, kept_classes, s);
}
