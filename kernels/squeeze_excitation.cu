// Squeeze and excitation (Hu et al., 2018): means over the pixels of each channel, which lie channels last, what small layers make
// of them (two over one pixel, or a window over neighbouring channels: Wang et al., 2020), and the product of the image with that.
// The blocks of a cluster share an image: each reads some of its pixels, and has a slice of the channels, of the terms and of the
// results. Sums are floats. Behind `cluster.cuh`.

#define THREADS 512

struct Squeeze {
    // Pixels of an image, and those that a block reads.
    int32 pixels, part;
    // What activations need, behind the first layer and the last.
    float inner[2], outer[2];
};

// As `cluster_wait`, whose instructions warps execute as one, behind loops that threads of a warp leave one after another.
__device__ __forceinline__ void meet() {
    __syncwarp();
    cluster_wait();
}

// How many of these a block has, in whole packs.
__host__ __device__ constexpr int share(int count, int blocks, int pack) { return (count + blocks * pack - 1) / (blocks * pack) * pack; }

// A block's channels, with HALO more on either side, whose sums the others send it.
template <int CHANNELS_, int HALO_, int BLOCKS_, int V_>
struct Channels {
    static constexpr int COUNT = CHANNELS_, HALO = HALO_, BLOCKS = BLOCKS_, V = V_;
    static constexpr int SLICE = share(COUNT, BLOCKS, V), HELD = SLICE + 2 * HALO;
};

// Sums this block's pixels of all channels, and sends each sum to the blocks that hold its channel.
template <typename C, typename T>
__device__ __forceinline__ void send_sums(float (&held)[C::BLOCKS][C::HELD], const T* x, uint32 rank, const Squeeze& s) {
    constexpr int V = C::V, PACKS = C::COUNT / V, LANES = PACKS < THREADS ? PACKS : THREADS, DEPTH = THREADS / LANES;
    __shared__ float cells[V][THREADS];
    const int32 lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    const int32 first = rank * s.part, last = min(s.pixels, first + s.part);
    for (int32 base = 0; base < PACKS; base += LANES) {
        const int32 pack = base + lane;
        const bool live = row < DEPTH && pack < PACKS;
        float sums[V] = {};
        if (live) {
#pragma unroll 4
            for (int32 at = first + row; at < last; at += DEPTH) {
                const Pack<T, V> read = *(const Pack<T, V>*)(x + (uint64)at * C::COUNT + pack * V);
#pragma unroll
                for (int k = 0; k < V; k++) sums[k] += widen(read.item[k]);
            }
        }
        // Whoever still reads what the packs before left must be done.
        __syncthreads();
#pragma unroll
        for (int k = 0; k < V; k++) cells[k][threadIdx.x] = sums[k];
        for (int32 rows = DEPTH; rows > 1; rows = (rows + 1) / 2) {
            const int32 half = (rows + 1) / 2;
            __syncthreads();
            if (row >= rows - half) continue;
#pragma unroll
            for (int k = 0; k < V; k++) cells[k][threadIdx.x] = sums[k] += cells[k][threadIdx.x + half * LANES];
        }
        __syncthreads();
        if (base == 0) cluster_meet();
        for (int32 i = threadIdx.x; i < LANES * V; i += THREADS) {
            const int32 channel = base * V + i;
            if (channel >= C::COUNT) break;
            const int32 to = min((channel + C::HALO) / C::SLICE, C::BLOCKS - 1);
            for (int32 block = max(channel - C::HALO, 0) / C::SLICE; block <= to; block++) {
                send(cells[i % V][i / V], shared_address(&held[rank][channel - block * C::SLICE + C::HALO]), block);
            }
        }
    }
    meet();
}

// The means of the channels that a block holds, which lie from `HALO` before its slice on; beyond the channels they are 0.
template <typename C>
__device__ __forceinline__ void average(float (&means)[C::HELD], const float (&held)[C::BLOCKS][C::HELD], uint32 rank, const Squeeze& s) {
    for (int32 i = threadIdx.x; i < C::HELD; i += THREADS) {
        const int32 channel = (int32)rank * C::SLICE - C::HALO + i;
        float sum = 0;
        if (channel >= 0 && channel < C::COUNT) {
#pragma unroll
            for (int32 block = 0; block < C::BLOCKS; block++) sum += held[block][i];
            sum /= (float)s.pixels;
        }
        means[i] = sum;
    }
    __syncthreads();
}

// Threads that share a row of so many numbers: each has a pack at once, unless there are too many rows.
__host__ __device__ constexpr int sharing(int rows, int length, int pack) {
    int team = 32;
    while (team > 1 && (rows * team > THREADS || team / 2 * pack >= length)) team /= 2;
    return team;
}

// Gives the product of each of `rows` rows, at most ROWS, with `length` numbers, at most LENGTH, to the threads that share it.
template <int ROWS, int LENGTH, int V, typename T, typename Give>
__device__ __forceinline__ void multiply_rows(const T* w, int32 stride, const float* by, int32 length, int32 rows, Give give) {
    constexpr int TEAM = sharing(ROWS, LENGTH, V), EACH = THREADS / TEAM;
    const int32 lane = threadIdx.x % TEAM;
    for (int32 base = 0; base < ROWS; base += EACH) {
        const int32 row = base + threadIdx.x / TEAM;
        float sum = 0;
        if (row < rows) {
#pragma unroll 8
            for (int32 at = lane * V; at < length; at += TEAM * V) {
                const Pack<T, V> read = *(const Pack<T, V>*)(w + (uint64)row * stride + at);
#pragma unroll
                for (int k = 0; k < V; k++) sum += widen(read.item[k]) * by[at + k];
            }
        }
#pragma unroll
        for (int lanes = TEAM / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
        if (row < rows) give(row, sum, lane, TEAM);
    }
}

// A factor of a channel: the result, or sent to all blocks, which multiply the image by it.
template <int RESULTS, int BLOCKS, bool SCALES, int HELD, typename T>
__device__ __forceinline__ void give(T* y, float (&factors)[HELD], float factor, int32 result, int32 lane, int32 team) {
    if constexpr (SCALES) {
        for (int32 block = lane; block < BLOCKS; block += team) send(factor, shared_address(&factors[result]), block);
    } else if (lane == 0) {
        y[(uint64)(blockIdx.x / BLOCKS) * RESULTS + result] = Narrow<T>::from(factor);
    }
}

// Multiplies this block's pixels by the factors of their channels, once all blocks have sent theirs.
template <typename C, typename T>
__device__ __forceinline__ void scale_pixels(T* y, const T* x, const float (&factors)[C::COUNT], uint32 rank, const Squeeze& s) {
    constexpr int32 V = C::V, PACKS = C::COUNT / V;
    meet();
    const int32 first = rank * s.part, last = min(s.pixels, first + s.part);
#pragma unroll 4
    for (int32 at = first * PACKS + threadIdx.x; at < last * PACKS; at += THREADS) {
        Pack<T, V> pack = *(const Pack<T, V>*)(x + (uint64)at * V);
#pragma unroll
        for (int k = 0; k < V; k++) pack.item[k] = Narrow<T>::from(widen(pack.item[k]) * factors[at % PACKS * V + k]);
        *(Pack<T, V>*)(y + (uint64)at * V) = pack;
    }
}

// Two layers over one pixel. The first is summed over the channels that each block holds; V is a pack of channels, VH one of hidden units.
// SCALES: the result is the image, multiplied by the factors.
template <int CHANNELS, int HIDDEN, int RESULTS, int BLOCKS, int V, int VH, int INNER, int OUTER, bool SCALES, typename T>
__device__ __forceinline__ void excite(T* y, const T* x, const T* w1, const T* b1, const T* w2, const T* b2, const Squeeze& s) {
    typedef Channels<CHANNELS, 0, BLOCKS, V> C;
    constexpr int SHARE = share(RESULTS, BLOCKS, 1);
    __shared__ float held[BLOCKS][C::HELD], means[C::HELD], terms[BLOCKS][HIDDEN], hidden[HIDDEN], factors[SCALES ? RESULTS : 1];
    const uint32 rank = blockIdx.x % BLOCKS;
    const uint64 image = (uint64)(blockIdx.x / BLOCKS) * s.pixels * CHANNELS;
    cluster_greet();
    send_sums<C>(held, x + image, rank, s);
    average<C>(means, held, rank, s);
    const int32 first = rank * C::SLICE, count = min(C::SLICE, CHANNELS - first);
    multiply_rows<HIDDEN, C::SLICE, V>(w1 + first, CHANNELS, means, count, HIDDEN, [&](int32 unit, float sum, int32 lane, int32 team) {
        for (int32 block = lane; block < BLOCKS; block += team) send(sum, shared_address(&terms[rank][unit]), block);
    });
    meet();
    for (int32 unit = threadIdx.x; unit < HIDDEN; unit += THREADS) {
        float sum = b1 ? widen(b1[unit]) : 0.0f;
#pragma unroll
        for (int32 block = 0; block < BLOCKS; block++) sum += terms[block][unit];
        hidden[unit] = f_activated(sum, INNER, s.inner);
    }
    __syncthreads();
    const int32 result = rank * SHARE, results = min(SHARE, RESULTS - result);
    w2 += (int64)result * HIDDEN;
    multiply_rows<SHARE, HIDDEN, VH>(w2, HIDDEN, hidden, HIDDEN, results, [&](int32 row, float sum, int32 lane, int32 team) {
        if (b2) sum += widen(b2[result + row]);
        give<RESULTS, BLOCKS, SCALES>(y, factors, f_activated(sum, OUTER, s.outer), result + row, lane, team);
    });
    if constexpr (SCALES) scale_pixels<C>(y + image, x + image, factors, rank, s);
}

// A window of 2 * HALO + 1 neighbouring channels.
template <int CHANNELS, int HALO, int BLOCKS, int V, int OUTER, bool SCALES, typename T>
__device__ __forceinline__ void excite_window(T* y, const T* x, const T* w, const T* bias, const Squeeze& s) {
    typedef Channels<CHANNELS, HALO, BLOCKS, V> C;
    __shared__ float held[BLOCKS][C::HELD], means[C::HELD], factors[SCALES ? CHANNELS : 1];
    const uint32 rank = blockIdx.x % BLOCKS;
    const uint64 image = (uint64)(blockIdx.x / BLOCKS) * s.pixels * CHANNELS;
    cluster_greet();
    send_sums<C>(held, x + image, rank, s);
    average<C>(means, held, rank, s);
    for (int32 i = threadIdx.x; i < C::SLICE; i += THREADS) {
        const int32 channel = rank * C::SLICE + i;
        if (channel >= CHANNELS) break;
        float sum = bias ? widen(bias[0]) : 0.0f;
#pragma unroll
        for (int32 k = 0; k < 2 * HALO + 1; k++) sum += widen(w[k]) * means[i + k];
        give<CHANNELS, BLOCKS, SCALES>(y, factors, f_activated(sum, OUTER, s.outer), channel, 0, 1);
    }
    if constexpr (SCALES) scale_pixels<C>(y + image, x + image, factors, rank, s);
}
