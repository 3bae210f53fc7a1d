// The first convolution of a network, of images with few channels: on tensor cores, from the pixels as they lie.
//
// A block computes tiles of 16 by 16 places, for 32 or 64 channels. It keeps what a tile sees in shared memory, channels
// innermost; there a row of the kernel is one run of elements for each place, and so the products need no gathering: two
// neighbours of a run are one register of a fragment.

struct Shape {
    int32 in_height, in_width, out_height, out_width, results, begin_height, begin_width;
    float slope;
    int32 x_stride[4], y_step;
    // Tiles along a row, along a column, and of all images.
    int32 across, down, tiles;
};

__device__ __forceinline__ float activated(float x, int32 activation, float slope) {
    switch (activation) {
        case 1: return f_leaky_relu(x, slope);
        case 2: return f_sigmoid(x);
        case 3: return f_silu(x);
        case 4: return tanh(x);
        case 5: return f_gelu(x);
        default: return x;
    }
}

typedef Pack<uint32, 2> Pair;

// c += a * b, of 16 by 16 by 8 (PTX ISA, "Matrix Fragments for mma.m16n8k16").
__device__ __forceinline__ void multiply(float (&c)[4], const uint32 (&a)[4], const Pair b, float16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.item[0]), "r"(b.item[1]));
}
__device__ __forceinline__ void multiply(float (&c)[4], const uint32 (&a)[4], const Pair b, bfloat16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.item[0]), "r"(b.item[1]));
}
// END OF MULTIPLY

// What is known when it is compiled, besides the activation: the window, the channels, and 32 times how many results a block computes.
template <int KH, int KW, int C, int STRIDE, int CHUNKS>
struct Stem {
    // Pairs of elements must begin at even places.
    static const int CHANNELS = STRIDE * C % 2 == 0 ? C : C + 1;
    static const int RUN = KW * CHANNELS;
    static const int PAIRS = (RUN + 1) / 2;
    static const int STEPS = (KH * PAIRS + 7) / 8;
    static const int TILE = 16;
    static const int ROWS = (TILE - 1) * STRIDE + KH;
    static const int COLUMNS = (TILE - 1) * STRIDE + KW;
    static const int PITCH = (COLUMNS * CHANNELS + 1) / 2 * 2;
    static const int COLUMN_TILES = 4 * CHUNKS;
};

// The channel, among those of the block, of a column of a fragment: so chosen that each thread ends with eight neighbours.
__device__ __forceinline__ int32 channel_of(int32 column_tile, int32 column) {
    return column_tile / 4 * 32 + column / 2 * 8 + column_tile % 4 * 2 + column % 2;
}

// The weights of the block's channels as fragments: a pair of registers for each step, column tile and lane.
template <int KH, int KW, int C, int STRIDE, int CHUNKS>
__device__ __forceinline__ void bring_weights(uint32* kept, const uint16* w, int32 first, int32 results) {
    typedef Stem<KH, KW, C, STRIDE, CHUNKS> S;
    for (int32 at = threadIdx.x; at < S::STEPS * S::COLUMN_TILES * 64; at += blockDim.x) {
        const int32 half = at % 2, lane = at / 2 % 32, column_tile = at / 64 % S::COLUMN_TILES;
        const int32 step = at / 64 / S::COLUMN_TILES;
        const int32 pair = step * 8 + half * 4 + lane % 4, row = pair / S::PAIRS;
        const int32 channel = first + channel_of(column_tile, lane / 4);
        uint32 both = 0;
        for (int32 i = 0; i < 2; i++) {
            const int32 element = pair % S::PAIRS * 2 + i, column = element / S::CHANNELS, c = element % S::CHANNELS;
            if (row < KH && column < KW && c < C && channel < results) {
                both |= (uint32)w[((channel * KH + row) * KW + column) * C + c] << 16 * i;
            }
        }
        kept[at] = both;
    }
}

// What a tile sees, zeros beyond the image.
template <int KH, int KW, int C, int STRIDE, int CHUNKS, bool PLAIN>
__device__ __forceinline__ void bring_pixels(uint16* kept, const uint16* x, int32 top, int32 left, const Shape& s) {
    typedef Stem<KH, KW, C, STRIDE, CHUNKS> S;
    for (int32 at = threadIdx.x; at < S::ROWS * S::COLUMNS * S::CHANNELS; at += blockDim.x) {
        // In the order of memory, so that neighbouring threads read neighbours.
        const int32 c = PLAIN ? at / (S::ROWS * S::COLUMNS) : at % S::CHANNELS;
        const int32 pixel = PLAIN ? at % (S::ROWS * S::COLUMNS) : at / S::CHANNELS;
        const int32 row = pixel / S::COLUMNS, column = pixel % S::COLUMNS;
        const int32 h = top + row, v = left + column;
        uint16 value = 0;
        if (c < C && h >= 0 && h < s.in_height && v >= 0 && v < s.in_width) {
            value = x[(uint64)c * s.x_stride[1] + (uint64)h * s.x_stride[2] + (uint64)v * s.x_stride[3]];
        }
        kept[row * S::PITCH + column * S::CHANNELS + c] = value;
    }
}

template <typename T, int KH, int KW, int C, int STRIDE, int CHUNKS, bool PLAIN, int ACTIVATION>
__device__ void stem(T* y, const T* x, const T* w, const T* bias, const Shape& s) {
    typedef Stem<KH, KW, C, STRIDE, CHUNKS> S;
    __shared__ alignas(16) uint32 weights[S::STEPS * S::COLUMN_TILES * 64];
    __shared__ alignas(16) uint16 pixels[S::ROWS * S::PITCH + 2];
    const int32 first = blockIdx.y * CHUNKS * 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32 quad = lane / 4, within = lane % 4;
    bring_weights<KH, KW, C, STRIDE, CHUNKS>(weights, (const uint16*)w, first, s.results);
    for (int32 tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
        const int32 left = tile % s.across * S::TILE, top = tile / s.across % s.down * S::TILE;
        const int32 image = tile / s.across / s.down;
        __syncthreads();
        bring_pixels<KH, KW, C, STRIDE, CHUNKS, PLAIN>(pixels, (const uint16*)x + (uint64)image * s.x_stride[0],
                                                       top * STRIDE - s.begin_height, left * STRIDE - s.begin_width, s);
        __syncthreads();
        // Two rows of the tile for each warp.
        float sum[2][S::COLUMN_TILES][4];
#pragma unroll
        for (int32 i = 0; i < 2; i++) {
#pragma unroll
            for (int32 j = 0; j < S::COLUMN_TILES; j++) {
#pragma unroll
                for (int32 k = 0; k < 4; k++) sum[i][j][k] = 0;
            }
        }
        const uint16* seen = pixels + warp * 2 * STRIDE * S::PITCH + quad * STRIDE * S::CHANNELS + within * 2;
#pragma unroll
        for (int32 step = 0; step < S::STEPS; step++) {
            uint32 a[2][4];
#pragma unroll
            for (int32 half = 0; half < 2; half++) {
                // All is known but for whether this thread's pair is on the next row of the kernel: at most one, since a
                // row has four pairs or more.
                const int32 pair = (step * 2 + half) * 4, row_of = pair / S::PAIRS, start = pair % S::PAIRS;
                const bool next = start + within >= S::PAIRS;
                const bool last = start + within == S::PAIRS - 1 || start + within == 2 * S::PAIRS - 1;
                // A run of odd length ends in half a pair, and the last step may go beyond the kernel.
                uint32 mask = S::RUN % 2 != 0 && last ? 0xffffu : 0xffffffffu;
                if (row_of + next >= KH) mask = 0;
                const int32 over = next ? S::PITCH - 2 * S::PAIRS : 0;
                // What is beyond the kernel is not there to be read.
                const uint16* from = seen + (row_of + next >= KH ? 0 : row_of * S::PITCH + start * 2 + over);
#pragma unroll
                for (int32 i = 0; i < 2; i++) {
                    const uint16* row = from + i * STRIDE * S::PITCH;
                    a[i][half * 2] = *(const uint32*)row & mask;
                    a[i][half * 2 + 1] = *(const uint32*)(row + 8 * STRIDE * S::CHANNELS) & mask;
                }
            }
#pragma unroll
            for (int32 j = 0; j < S::COLUMN_TILES; j++) {
                const Pair b = *(const Pair*)(weights + ((step * S::COLUMN_TILES + j) * 32 + lane) * 2);
                multiply(sum[0][j], a[0], b, T());
                multiply(sum[1][j], a[1], b, T());
            }
        }
#pragma unroll
        for (int32 chunk = 0; chunk < CHUNKS; chunk++) {
            const int32 channel = first + chunk * 32 + within * 8;
            if (channel >= s.results) continue;
            float shift[8];
#pragma unroll
            for (int32 k = 0; k < 8; k++) shift[k] = bias ? widen(bias[channel + k]) : 0;
#pragma unroll
            for (int32 i = 0; i < 4; i++) {
                const int32 h = top + warp * 2 + i / 2, v = left + quad + i % 2 * 8;
                if (h >= s.out_height || v >= s.out_width) continue;
                Pack<T, 8> result;
#pragma unroll
                for (int32 k = 0; k < 8; k++) {
                    const float value = sum[i / 2][chunk * 4 + k / 2][i % 2 * 2 + k % 2] + shift[k];
                    result.item[k] = Narrow<T>::from(activated(value, ACTIVATION, s.slope));
                }
                *(Pack<T, 8>*)(y + (((uint64)image * s.out_height + h) * s.out_width + v) * s.y_step + channel) = result;
            }
        }
    }
}
