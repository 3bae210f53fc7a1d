// Products with weights of 4 or 8 bits that stay so in memory. A warp has 16 columns and a share of the terms; tensor cores multiply
// codes less their zero points, which 16 bits hold exactly, and sums over the terms that share a scale are multiplied with it as floats.
// Behind `products.cuh` and a `Tail`.

struct NBits {
    // Of the left operand and the result, and weights of a column.
    int32 rows, columns, terms;
    // Numbers of terms that share a scale, and columns with those that fill the last tile up.
    int32 blocks, pitch;
};

// A tile has 16 columns, and lies in pieces of so many terms. A piece is four products of 16 terms, in each of which a lane has two
// columns (its row of lanes, and that plus 8) and four neighbouring terms: two pairs, as operands of `mma.m16n8k16`.
constexpr int32 TILE = 16, PIECE = 64, TERMS = 16;

// How a block works: BITS of a code, SHARING terms with one scale, zero points other than the middle (ZEROS), scales of type `Scale`,
// WARPS that share the terms, rows of the left operand in EIGHTS, and TILES that are multiplied with them at once.
template <int32 BITS_, int32 SHARING_, bool ZEROS_, typename Scale_, int32 WARPS_, int32 EIGHTS_, int32 TILES_>
struct Shape {
    static constexpr int32 BITS = BITS_, SHARING = SHARING_, WARPS = WARPS_, EIGHTS = EIGHTS_, ROWS = 8 * EIGHTS;
    static constexpr int32 TILES = TILES_, COLUMNS = TILES * TILE;
    static constexpr bool ZEROS = ZEROS_;
    typedef Scale_ Scale;
    // Products whose terms share a scale for sure, such groups of a piece, and packs of 16 bytes that a lane has of it.
    static constexpr int32 TOGETHER = SHARING % PIECE == 0 ? 4 : SHARING % 32 == 0 ? 2 : 1, SCALES = 4 / TOGETHER, PACKS = BITS / 4;
    // Pieces of weights that are on their way, and of the left operand, of which many rows take many registers.
    static constexpr int32 AHEAD = TILES == 1 ? 4 : 2, LEFTS = EIGHTS <= 2 ? 2 : 1;
};

// What bits of a word are, beside others.
__device__ __forceinline__ uint32 chosen(uint32 word, uint32 mask, uint32 beside) {
    uint32 found;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(found) : "r"(word), "r"(mask), "r"(beside));
    return found;
}

// Pairs of codes less a zero point as operands, exactly: beside `BASE` the last bits of a number count one by one. Those of 4 bits lie
// in a word, each pair four bits above the one before it and 16 apart; those of 8 bits in two.
template <typename T, int32 BITS>
struct Codes;
template <int32 BITS>
struct Codes<float16, BITS> {
    static constexpr uint32 BASE = 0x64006400;
    static __device__ __forceinline__ uint32 less(uint32 pair, uint32 other) {
        uint32 rest;
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(rest) : "r"(pair), "r"(other));
        return rest;
    }
    static __device__ __forceinline__ void four(const uint32* words, const uint32 (&zeros)[2], uint32 (&codes)[4]) {
        #pragma unroll
        for (int32 i = 0; i < 4; i++) {
            const uint32 zero = zeros[i % 2] * 0x10001;
            if (BITS == 8) {
                codes[i] = less(__byte_perm(words[i / 2], BASE, i % 2 ? 0x7352 : 0x7150), BASE + zero);
            } else if (i % 2 == 0) {
                codes[i] = less(chosen(words[0] >> i * 4, 0x000f000f, BASE), BASE + zero);
            } else {
                // Sixteen times as large, and the base with it.
                const uint32 pair = chosen(words[0] >> (i - 1) * 4, 0x00f000f0, BASE);
                asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(codes[i]) : "r"(pair), "r"(0x2c002c00), "r"(sixteenth(zeros[1])));
            }
        }
    }
    // Less a sixteenth of the base, 64, and a zero point, which 16 times the last digit of 64 counts.
    static __device__ __forceinline__ uint32 sixteenth(uint32 zero) { return 0xd400d400 + zero * 0x100010; }
};
template <>
struct Codes<bfloat16, 4> {
    static constexpr uint32 BASE = 0x43004300;
    static __device__ __forceinline__ void four(const uint32* words, const uint32 (&zeros)[2], uint32 (&codes)[4]) {
        #pragma unroll
        for (int32 i = 0; i < 4; i++) {
            const uint32 pair = chosen(words[0] >> i * 4, 0x000f000f, BASE), other = BASE + zeros[i % 2] * 0x10001;
            // Ampere has no subtraction: one times the first, plus the other, whose sign is turned.
            asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(codes[i]) : "r"(pair), "r"(0x3f803f80), "r"(other ^ 0x80008000));
        }
    }
};
// bfloat16 has eight digits, and no place for those of a number beside eight others: that is a float's, whose upper half is left.
template <>
struct Codes<bfloat16, 8> {
    static constexpr uint32 BASE = 0x4b000000;
    static __device__ __forceinline__ void four(const uint32* words, const uint32 (&zeros)[2], uint32 (&codes)[4]) {
        #pragma unroll
        for (int32 i = 0; i < 4; i++) {
            const float zero = __uint_as_float(BASE + zeros[i % 2]);
            const uint32 low = __byte_perm(words[i / 2], BASE, i % 2 ? 0x7542 : 0x7540);
            const uint32 high = __byte_perm(words[i / 2], BASE, i % 2 ? 0x7543 : 0x7541);
            const float two[2] = {__uint_as_float(low) - zero, __uint_as_float(high) - zero};
            codes[i] = __byte_perm(__float_as_uint(two[0]), __float_as_uint(two[1]), 0x7632);
        }
    }
};

// Four numbers of the left operand as operands of tensor cores: of 16 bits as they are, and floats as three of bfloat16 whose sum they
// are.
template <typename T>
struct Parts {
    typedef T Operand;
    static constexpr int32 COUNT = 1;
    static __device__ __forceinline__ void split(const Pack<uint32, 2>& four, uint32 (&parts)[1][2]) {
        parts[0][0] = four.item[0];
        parts[0][1] = four.item[1];
    }
};
template <>
struct Parts<float> {
    typedef bfloat16 Operand;
    static constexpr int32 COUNT = 3;
    static __device__ __forceinline__ void split(const Pack<uint32, 4>& four, uint32 (&parts)[3][2]) {
        constexpr uint32 ENDLESS = 0x7f800000;
        Pack<uint32, 4> rest = four;
        #pragma unroll
        for (int32 i = 0; i < 4; i++) {
            // The upper half of a NaN may be that of infinity.
            if ((rest.item[i] & 0x7fffffff) > ENDLESS) rest.item[i] = 0x7fc00000;
        }
        #pragma unroll
        for (int32 part = 0; part < 3; part++) {
            parts[part][0] = __byte_perm(rest.item[0], rest.item[1], 0x7632);
            parts[part][1] = __byte_perm(rest.item[2], rest.item[3], 0x7632);
            #pragma unroll
            for (int32 i = 0; i < 4; i++) {
                // What has no end is its first part alone: infinity less itself would be NaN.
                const uint32 own = rest.item[i];
                const float lower = __uint_as_float(own) - __uint_as_float(own & 0xffff0000);
                rest.item[i] = (own & ENDLESS) == ENDLESS ? 0 : __float_as_uint(lower);
            }
        }
    }
};

// Where weights lie.
template <typename L>
struct Weights {
    const uint8* codes;
    const typename L::Scale* scales;
    const uint8* zeros;
};

// Where those of a lane begin: its codes of a tile, and what is said of its two columns.
template <typename L>
struct Begins {
    typedef Pack<typename L::Scale, 2> Scales;
    typedef Pack<uint8, 2> Zeros;
    const Pack<uint32, 4>* codes;
    const Scales* scales;
    const Zeros* zeros;

    Begins() = default;
    __device__ __forceinline__ Begins(const Weights<L>& w, const NBits& s, int32 tile) {
        const uint32 pieces = ((uint32)s.terms + PIECE - 1) / PIECE, pair = tile * (TILE / 2) + threadIdx.x % 32 / 4;
        codes = (const Pack<uint32, 4>*)w.codes + (uint64)tile * pieces * (32 * L::PACKS) + threadIdx.x % 32;
        scales = (const Scales*)w.scales + pair;
        zeros = (const Zeros*)w.zeros + pair;
    }
};

// What a lane has of a piece of a tile: codes, and for both columns what sums are multiplied with and what codes count from.
template <typename L, typename Operand>
struct Piece {
    Pack<uint32, 4> packs[L::PACKS];
    typename Begins<L>::Scales scales[L::SCALES];
    typename Begins<L>::Zeros zeros[L::SCALES];

    // Of a number, whose codes lie there.
    __device__ __forceinline__ void fetch(const Pack<uint32, 4>* codes, const Begins<L>& from, const NBits& s, uint32 piece) {
        #pragma unroll
        for (int32 i = 0; i < L::PACKS; i++) packs[i] = codes[i * 32];
        #pragma unroll
        for (int32 i = 0; i < L::SCALES; i++) {
            uint32 block = (piece * PIECE + i * (PIECE / L::SCALES)) / L::SHARING;
            // A piece may go beyond the last one.
            if (L::SHARING % PIECE) block = min(block, s.blocks - 1);
            const uint32 at = block * (s.pitch / 2);
            scales[i] = from.scales[at];
            if (L::ZEROS) zeros[i] = from.zeros[at];
        }
    }
    // The codes of one of its products.
    __device__ __forceinline__ void four(int32 product, uint32 (&codes)[4]) const {
        const uint32* const words =
            L::BITS == 4 ? packs[0].item + product : packs[product / 2 % L::PACKS].item + product % 2 * 2;
        uint32 zero[2] = {1 << (L::BITS - 1), 1 << (L::BITS - 1)};
        if (L::ZEROS) {
            zero[0] = zeros[product / L::TOGETHER].item[0];
            zero[1] = zeros[product / L::TOGETHER].item[1];
        }
        Codes<Operand, L::BITS>::four(words, zero, codes);
    }
    __device__ __forceinline__ float scale(int32 product, int32 half) const {
        return widen(scales[product / L::TOGETHER].item[half]);
    }
};

// What a lane has of the left operand for a piece: four terms of a row of each eight in each product. Rows beyond the last one are that
// one once more: nobody writes what becomes of them.
template <typename L, typename T>
struct Left {
    typedef Pack<uint32, sizeof(T)> Four;
    Four fours[4][L::EIGHTS];

    // From its terms in each row on, of which so many are left; with zeros behind the last one. At once where rows are EVEN, and without a
    // look at that where there are more.
    template <bool EVEN>
    __device__ __forceinline__ void fetch(const T* const (&rows)[L::EIGHTS], int32 along, int32 left) {
        #pragma unroll
        for (int32 eight = 0; eight < L::EIGHTS; eight++) {
            const T* const from = rows[eight] + along;
            if (EVEN && left >= PIECE) {
                #pragma unroll
                for (int32 i = 0; i < 4; i++) fours[i][eight] = *(const Four*)(from + i * TERMS);
            } else {
                #pragma unroll
                for (int32 i = 0; i < 4; i++) fours[i][eight] = some(from + i * TERMS, left - i * TERMS);
            }
        }
    }
    static __device__ __forceinline__ Four some(const T* from, int32 left) {
        Pack<T, 4> four = {};
        #pragma unroll
        for (int32 i = 0; i < 4; i++) {
            if (i < left) four.item[i] = from[i];
        }
        return *(const Four*)&four;
    }
};

// Adds the products of a piece.
template <typename L, typename T, typename Operand>
__device__ __forceinline__ void add_products(float (&totals)[L::EIGHTS][4], const Piece<L, Operand>& piece, const Left<L, T>& left) {
    constexpr int32 PARTS = Parts<T>::COUNT;
    #pragma unroll
    for (int32 first = 0; first < 4; first += L::TOGETHER) {
        float sums[L::EIGHTS][4] = {};
        #pragma unroll
        for (int32 product = first; product < first + L::TOGETHER; product++) {
            uint32 codes[4];
            piece.four(product, codes);
            #pragma unroll
            for (int32 eight = 0; eight < L::EIGHTS; eight++) {
                uint32 parts[PARTS][2];
                Parts<T>::split(left.fours[product][eight], parts);
                #pragma unroll
                for (int32 part = PARTS - 1; part >= 0; part--) {
                    multiply_add(Operand(), sums[eight], codes, parts[part][0], parts[part][1]);
                }
            }
        }
        #pragma unroll
        for (int32 eight = 0; eight < L::EIGHTS; eight++) {
            #pragma unroll
            for (int32 at = 0; at < 4; at++) {
                totals[eight][at] = __fmaf_rn(sums[eight][at], piece.scale(first, at / 2), totals[eight][at]);
            }
        }
    }
}

// What a warp has on its way, and its sums.
template <typename L, typename T>
struct Tiles {
    typedef Piece<L, typename Parts<T>::Operand> Own;
    Own ahead[L::AHEAD][L::TILES];
    float totals[L::TILES][L::EIGHTS][4];

    // The first pieces, of tiles that lie behind one another; a last one that is not there is the one before it once more.
    __device__ __forceinline__ void begin(const Begins<L> (&from)[L::TILES], const NBits& s) {
        #pragma unroll
        for (int32 i = 0; i < L::AHEAD; i++) {
            const int32 piece = threadIdx.x / 32 + i * L::WARPS;
            if (piece * PIECE < s.terms) fetch(i, from, piece * (32 * L::PACKS), s, piece);
        }
        #pragma unroll
        for (int32 at = 0; at < L::TILES * L::EIGHTS * 4; at++) (&totals[0][0][0])[at] = 0;
    }
    __device__ __forceinline__ void fetch(int32 i, const Begins<L> (&from)[L::TILES], int32 along, const NBits& s, int32 piece) {
        #pragma unroll
        for (int32 tile = 0; tile < L::TILES; tile++) ahead[i][tile].fetch(from[tile].codes + along, from[tile], s, piece);
    }

    // Adds all pieces of a warp. Rows begin at the lane's terms of the first one; places of those behind it are the same distance apart, so
    // that they take few instructions.
    template <bool EVEN>
    __device__ __forceinline__ void sum(Begins<L> (&from)[L::TILES], const T* (&rows)[L::EIGHTS], const NBits& s) {
        constexpr int32 ROUND = L::AHEAD * L::WARPS, PACKS = 32 * L::PACKS;
        const int32 pieces = (s.terms + PIECE - 1) / PIECE, warp = threadIdx.x / 32;
        int32 left = s.terms - warp * PIECE - threadIdx.x % 4 * 4;
        Left<L, T> lefts[L::LEFTS];
        if (L::LEFTS > 1) lefts[0].template fetch<EVEN>(rows, 0, left);
        #pragma unroll
        for (int32 tile = 0; tile < L::TILES; tile++) from[tile].codes += (warp + ROUND) * PACKS;
        for (int32 begin = warp; begin < pieces; begin += ROUND) {
            #pragma unroll
            for (int32 i = 0; i < L::AHEAD; i++) {
                const int32 piece = begin + i * L::WARPS, own = L::LEFTS > 1 ? i + 1 : i, along = own * L::WARPS * PIECE;
                // Beyond the last piece there are zeros.
                lefts[own % L::LEFTS].template fetch<EVEN>(rows, along, left - along);
                #pragma unroll
                for (int32 tile = 0; tile < L::TILES; tile++) add_products(totals[tile], ahead[i][tile], lefts[i % L::LEFTS]);
                if (piece + ROUND < pieces) fetch(i, from, i * L::WARPS * PACKS, s, piece + ROUND);
                if (piece + L::WARPS >= pieces) return;
            }
            left -= ROUND * PIECE;
            #pragma unroll
            for (int32 tile = 0; tile < L::TILES; tile++) from[tile].codes += ROUND * PACKS;
            #pragma unroll
            for (int32 eight = 0; eight < L::EIGHTS; eight++) rows[eight] += ROUND * PIECE;
        }
    }
};

template <typename L, typename T, typename Y, typename Tail>
__device__ __forceinline__ void multiply_codes(Y* y, const T* a, const Weights<L>& w, const Tail& tail, const NBits& s) {
    __shared__ float shared[L::WARPS][L::ROWS][L::COLUMNS];
    const int32 warp = threadIdx.x / 32, own = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
    const int32 tiles = s.pitch / TILE, groups = (tiles + L::TILES - 1) / L::TILES;
    const int32 tile = blockIdx.x % groups * L::TILES, first = blockIdx.x / groups * L::ROWS;
    Begins<L> from[L::TILES];
    #pragma unroll
    for (int32 i = 0; i < L::TILES; i++) from[i] = Begins<L>(w, s, min(tile + i, tiles - 1));
    Tiles<L, T> sums;
    // Nobody writes weights any more.
    sums.begin(from, s);
    after_previous();
    const T* rows[L::EIGHTS];
    #pragma unroll
    for (int32 eight = 0; eight < L::EIGHTS; eight++) {
        rows[eight] = a + (uint64)min(first + eight * 8 + own, s.rows - 1) * s.terms + warp * PIECE + lane * 4;
    }
    if (s.terms % 4 == 0 && (uint64)a % (4 * sizeof(T)) == 0) {
        sums.template sum<true>(from, rows, s);
    } else {
        sums.template sum<false>(from, rows, s);
    }
    #pragma unroll
    for (int32 i = 0; i < L::TILES; i++) {
        #pragma unroll
        for (int32 eight = 0; eight < L::EIGHTS; eight++) {
            #pragma unroll
            for (int32 at = 0; at < 4; at++) {
                shared[warp][eight * 8 + lane * 2 + at % 2][i * TILE + own + at / 2 * 8] = sums.totals[i][eight][at];
            }
        }
    }
    __syncthreads();
    for (int32 i = threadIdx.x; i < L::ROWS * L::COLUMNS; i += L::WARPS * 32) {
        const int32 row = first + i / L::COLUMNS, result = tile * TILE + i % L::COLUMNS;
        if (row >= s.rows || result >= s.columns) continue;
        float sum = 0;
        #pragma unroll
        for (int32 other = 0; other < L::WARPS; other++) sum += shared[other][i / L::COLUMNS][i % L::COLUMNS];
        const uint64 at = (uint64)row * s.columns + result;
        y[at] = tail.one(sum, at, result);
    }
}

// Weights as numbers, a row for each column of the result: a warp writes a piece of a tile.
template <typename L, typename T>
__device__ __forceinline__ void write_weights(T* to, const Weights<L>& w, const NBits& s) {
    typedef typename Parts<T>::Operand Operand;
    const int32 own = threadIdx.x % 32 / 4, lane = threadIdx.x % 4, pieces = (s.terms + PIECE - 1) / PIECE;
    const uint64 number = ((uint64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int32 piece = number % pieces, tile = number / pieces;
    if (tile >= s.pitch / TILE) return;
    Piece<L, Operand> now;
    const Begins<L> from(w, s, tile);
    now.fetch(from.codes + piece * (32 * L::PACKS), from, s, piece);
    #pragma unroll
    for (int32 product = 0; product < 4; product++) {
        const int32 term = piece * PIECE + product * TERMS + lane * 4;
        uint32 codes[4];
        now.four(product, codes);
        #pragma unroll
        for (int32 half = 0; half < 2; half++) {
            const Pack<Operand, 2> pairs[2] = {*(const Pack<Operand, 2>*)(codes + half), *(const Pack<Operand, 2>*)(codes + 2 + half)};
            Pack<T, 4> four;
            #pragma unroll
            for (int32 i = 0; i < 4; i++) four.item[i] = Narrow<T>::from(widen(pairs[i / 2].item[i % 2]) * now.scale(product, half));
            const int32 column = tile * TILE + own + half * 8;
            if (column >= s.columns) continue;
            T* const row = to + (uint64)column * s.terms + term;
            if (s.terms % 4 == 0) {
                if (term < s.terms) *(Pack<T, 4>*)row = four;
                continue;
            }
            #pragma unroll
            for (int32 i = 0; i < 4; i++) {
                if (term + i < s.terms) row[i] = four.item[i];
            }
        }
    }
}
