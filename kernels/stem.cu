// The first convolution of a network, of images with few channels: on tensor cores, from the pixels as they lie.
//
// Numbers of 8 bits are numbers of 16 bits here, whose products and sums are exact as long as these have 24 bits.
//
// A block computes tiles of 16 by 16 places, for 32 or 64 channels. It keeps what a tile sees in shared memory, channels
// innermost; there a row of the kernel is one run of elements for each place, and so the products need no gathering: two
// neighbours of a run are one register of a fragment.

struct Shape {
    int32 in_height, in_width, out_height, out_width, results, begin_height, begin_width;
    float numbers[2];
    int32 x_stride[4], y_step;
    // Tiles along a row, along a column, and of all images.
    int32 across, down, tiles;
};

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
    static const int THREADS = 256;
    // Pairs of elements must begin at even places.
    static const int CHANNELS = STRIDE * C % 2 == 0 ? C : C + 1;
    static const int RUN = KW * CHANNELS;
    static const int PAIRS = (RUN + 1) / 2;
    static const int STEPS = (KH * PAIRS + 7) / 8;
    static const int TILE = 16;
    static const int ROWS = (TILE - 1) * STRIDE + KH;
    static const int COLUMNS = (TILE - 1) * STRIDE + KW;
    static const int PITCH = (COLUMNS * CHANNELS + 1) / 2 * 2;
    static const int KEPT = ROWS * PITCH + 2;
    static const int COLUMN_TILES = 4 * CHUNKS;
    // Rows of pixels that the threads bring at once, and how often they do for each channel.
    static const int AT_ONCE = THREADS / COLUMNS;
    static const int PASSES = (ROWS + AT_ONCE - 1) / AT_ONCE;
};

// The channel, among those of the block, of a column of a fragment: so chosen that each thread ends with eight neighbours.
__device__ __forceinline__ int32 channel_of(int32 column_tile, int32 column) {
    return column_tile / 4 * 32 + column / 2 * 8 + column_tile % 4 * 2 + column % 2;
}

// A number as one of T: what is of T is only moved.
template <typename T, typename X>
__device__ __forceinline__ uint16 bits(X x) {
    return Narrow<T>::from((float)widen(x)).bits;
}
template <typename T>
__device__ __forceinline__ uint16 bits(uint16 x) {
    return x;
}

// Pixels that are multiplied as they are.
template <typename T>
struct AsTheyAre {
    template <typename X>
    __device__ __forceinline__ uint16 operator()(X x) const {
        return bits<T>(x);
    }
};

// The weights of the block's channels as fragments: a pair of registers for each step, column tile and lane. Those of a channel
// begin `pitch` behind those of the one before.
template <typename T, typename W, int KH, int KW, int C, int STRIDE, int CHUNKS>
__device__ __forceinline__ void bring_weights(uint32* kept, const W* w, int32 pitch, int32 first, int32 results) {
    typedef Stem<KH, KW, C, STRIDE, CHUNKS> S;
    // Loads that wait for nothing, so that several are under way at once.
#pragma unroll 4
    for (int32 at = threadIdx.x; at < S::STEPS * S::COLUMN_TILES * 64; at += S::THREADS) {
        const int32 half = at % 2, lane = at / 2 % 32, column_tile = at / 64 % S::COLUMN_TILES;
        const int32 step = at / 64 / S::COLUMN_TILES;
        const int32 pair = step * 8 + half * 4 + lane % 4, row = pair / S::PAIRS;
        const int32 channel = first + channel_of(column_tile, lane / 4);
        uint32 both = 0;
#pragma unroll
        for (int32 i = 0; i < 2; i++) {
            const int32 element = pair % S::PAIRS * 2 + i, column = element / S::CHANNELS, c = element % S::CHANNELS;
            const bool there = row < KH && column < KW && c < C && channel < results;
            const uint32 weight = bits<T>(w[there ? channel * pitch + (row * KW + column) * C + c : 0]);
            both |= (there ? weight : 0) << 16 * i;
        }
        kept[at] = both;
    }
}

// The pixels that a thread brings of what a tile sees, and `outside` beyond the image: they are fetched while the tile before is
// computed. X is uint16 for what is of the type that is multiplied.
template <typename X, int KH, int KW, int C, int STRIDE, int CHUNKS>
struct Pixels {
    typedef Stem<KH, KW, C, STRIDE, CHUNKS> S;
    X item[C][S::PASSES];

    __device__ __forceinline__ void fetch(const X* x, int32 tile, const Shape& s, X outside) {
        const int32 v = tile % s.across * (S::TILE * STRIDE) - s.begin_width + (int32)threadIdx.x % S::COLUMNS;
        const int32 line = (int32)threadIdx.x / S::COLUMNS;
        const int32 top = tile / s.across % s.down * (S::TILE * STRIDE) - s.begin_height;
        const bool within = v >= 0 && v < s.in_width && line < S::AT_ONCE;
        x += (uint64)(tile / s.across / s.down) * s.x_stride[0];
#pragma unroll
        for (int32 pass = 0; pass < S::PASSES; pass++) {
            const int32 row = pass * S::AT_ONCE + line, h = top + row;
            const bool there = within && row < S::ROWS && h >= 0 && h < s.in_height;
            const X* from = x + (int64)h * s.x_stride[2] + (int64)v * s.x_stride[3];
#pragma unroll
            for (int32 c = 0; c < C; c++) {
                item[c][pass] = outside;
                if (there) item[c][pass] = from[(int64)c * s.x_stride[1]];
            }
        }
    }

    template <typename Reader>
    __device__ __forceinline__ void keep(uint16* kept, const Reader& reader) const {
        const int32 column = (int32)threadIdx.x % S::COLUMNS, line = (int32)threadIdx.x / S::COLUMNS;
        if (line >= S::AT_ONCE) return;
#pragma unroll
        for (int32 pass = 0; pass < S::PASSES; pass++) {
            const int32 row = pass * S::AT_ONCE + line;
            if (row >= S::ROWS) continue;
#pragma unroll
            for (int32 c = 0; c < C; c++) kept[row * S::PITCH + column * S::CHANNELS + c] = reader(item[c][pass]);
        }
    }
};

// Writes eight neighbours at a place, with a bias and an activation.
template <typename T, int ACTIVATION>
struct ActivatedWriter {
    // How many numbers it wants for each channel.
    static constexpr int LISTS = 1;
    T* y;
    const T* bias;

    __device__ __forceinline__ float list(int32, int32 channel) const { return bias ? widen(bias[channel]) : 0; }
    __device__ __forceinline__ void write(const float (&sums)[8], const Pack<float, 8> (&lists)[1], uint64 place, int32 channel,
                                          const Shape& s) const {
        Pack<T, 8> result;
#pragma unroll
        for (int32 k = 0; k < 8; k++) result.item[k] = Narrow<T>::from(f_activated(sums[k] + lists[0].item[k], ACTIVATION, s.numbers));
        *(Pack<T, 8>*)(y + place * s.y_step + channel) = result;
    }
};

// T is multiplied: the bits that the reader makes of pixels X, and weights W.
template <typename T, typename X, typename W, int KH, int KW, int C, int STRIDE, int CHUNKS, typename Reader, typename Writer>
__device__ void stem(
    const X* x, const W* w, int32 pitch, X outside, const Reader& reader, const Writer& writer, const Shape& s
) {
    typedef Stem<KH, KW, C, STRIDE, CHUNKS> S;
    __shared__ alignas(16) uint32 weights[S::STEPS * S::COLUMN_TILES * 64];
    __shared__ alignas(16) uint16 pixels[S::KEPT];
    __shared__ alignas(32) float lists[Writer::LISTS][CHUNKS * 32];
    const int32 first = blockIdx.y * CHUNKS * 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32 quad = lane / 4, within = lane % 4;
    Pixels<X, KH, KW, C, STRIDE, CHUNKS> seen_next;
    seen_next.fetch(x, blockIdx.x, s, outside);
    // What lies between the channels and behind the rows stays zero.
    for (int32 at = threadIdx.x; at < S::KEPT; at += S::THREADS) pixels[at] = 0;
    for (int32 at = threadIdx.x; at < CHUNKS * 32; at += S::THREADS) {
#pragma unroll
        for (int32 list = 0; list < Writer::LISTS; list++) {
            lists[list][at] = first + at < s.results ? writer.list(list, first + at) : 0;
        }
    }
    bring_weights<T, W, KH, KW, C, STRIDE, CHUNKS>(weights, w, pitch, first, s.results);
    for (int32 tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
        const int32 left = tile % s.across * S::TILE, top = tile / s.across % s.down * S::TILE;
        const int32 image = tile / s.across / s.down;
        __syncthreads();
        seen_next.keep(pixels, reader);
        __syncthreads();
        if (tile + (int32)gridDim.x < s.tiles) seen_next.fetch(x, tile + gridDim.x, s, outside);
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
            Pack<float, 8> own[Writer::LISTS];
#pragma unroll
            for (int32 list = 0; list < Writer::LISTS; list++) own[list] = *(const Pack<float, 8>*)(lists[list] + chunk * 32 + within * 8);
#pragma unroll
            for (int32 i = 0; i < 4; i++) {
                const int32 h = top + warp * 2 + i / 2, v = left + quad + i % 2 * 8;
                if (h >= s.out_height || v >= s.out_width) continue;
                float sums[8];
#pragma unroll
                for (int32 k = 0; k < 8; k++) sums[k] = sum[i / 2][chunk * 4 + k / 2][i % 2 * 2 + k % 2];
                writer.write(sums, own, ((uint64)image * s.out_height + h) * s.out_width + v, channel, s);
            }
        }
    }
}
