// Products with weights of 4 or 8 bits that stay so in memory. A warp has 16 columns and a share of the terms; tensor cores multiply
// codes less their zero points, which 16 bits hold exactly, and sums over the terms that share a scale are multiplied with it as floats.
// Each warp brings its weights to shared memory ahead of time, without a wait for others. Behind `products.cuh`, `codes.cuh` and a `Tail`.

struct NBits {
    // Of the left operand and the result, weights of a column, and tiles of columns.
    int32 rows, columns, terms, tiles;
};

// A tile has 16 columns, and lies in pieces of so many terms. A piece is eight products of 16 terms, in each of which a lane has two
// columns (its row of lanes, and that plus 8) and four neighbouring terms: two pairs, as operands of `mma.m16n8k16`. Sums are scaled
// after half a piece, or sooner.
constexpr int32 TILE = 16, PIECE = 128, HALF = 64, TERMS = 16;

// What is said of both columns of a lane in terms that share it: what sums are multiplied with, and what codes count from.
template <typename Scale, bool ZEROS>
struct alignas(2 * sizeof(Scale)) Scaling {
    Scale scales[2];
    __device__ __forceinline__ uint32 zero(int32, uint32 middle) const { return middle; }
};
template <typename Scale>
struct alignas(4 * sizeof(Scale)) Scaling<Scale, true> {
    Scale scales[2];
    uint8 zeros[2];
    __device__ __forceinline__ uint32 zero(int32 half, uint32) const { return zeros[half]; }
};

// A piece of a tile in memory: codes of each lane, and what is said of rows of lanes in each group of products.
template <int32 PACKS, int32 GROUPS, typename Said>
struct alignas(16) Record {
    Pack<uint32, 4> packs[PACKS][32];
    Said said[GROUPS][8];
};

// How weights lie: BITS of a code, SHARING terms with one scale, zero points other than the middle (ZEROS), scales of type `Scale`.
template <int32 BITS_, int32 SHARING, bool ZEROS, typename Scale>
struct Coding {
    static constexpr int32 BITS = BITS_;
    // Groups of a piece whose terms share a scale for sure, and products that are summed before they are scaled.
    static constexpr int32 GROUPS = SHARING % 128 == 0 ? 1 : SHARING % 64 == 0 ? 2 : SHARING % 32 == 0 ? 4 : 8;
    static constexpr int32 PRODUCTS = PIECE / TERMS, TOGETHER = GROUPS > 2 ? PRODUCTS / GROUPS : 4;
    // Groups and packs of half a piece.
    static constexpr int32 OWN_GROUPS = GROUPS > 2 ? GROUPS / 2 : 1, OWN_PACKS = BITS / 4;
    // Whether the terms of a lane in a half lie together.
    static constexpr bool NEAR = TOGETHER == 4;
    typedef Scaling<Scale, ZEROS> Said;
    typedef Record<BITS / 2, GROUPS, Said> Piece;
};

// How a block works: WARPS that share the terms, rows of the left operand in EIGHTS, TILES that are multiplied with them at once, and
// pieces that are on their way (AHEAD).
template <typename Coding_, int32 WARPS_, int32 EIGHTS_, int32 TILES_, int32 AHEAD_>
struct Shape : Coding_ {
    typedef Coding_ Coding;
    static constexpr int32 WARPS = WARPS_, EIGHTS = EIGHTS_, ROWS = 8 * EIGHTS, TILES = TILES_, COLUMNS = TILES * TILE, AHEAD = AHEAD_;
    // Halves of the left operand at once, of which many rows take many registers.
    static constexpr int32 LEFTS = EIGHTS <= 2 ? 2 : 1;
    // Groups of tiles that are multiplied at once, and pieces of a tile that are a warp's.
    static __device__ __forceinline__ int32 groups(const NBits& s) { return (s.tiles + TILES - 1) / TILES; }
    static __device__ __forceinline__ int32 pieces(const NBits& s) { return (s.terms + PIECE - 1) / PIECE; }
    static __device__ __forceinline__ int32 pieces_of_warp(const NBits& s) {
        return (pieces(s) - (int32)threadIdx.x / 32 + WARPS - 1) / WARPS;
    }
};

// What a lane has of half a piece.
template <typename C>
struct Half {
    Pack<uint32, 4> packs[C::OWN_PACKS];
    typename C::Said said[C::OWN_GROUPS];

    // The codes of a product, less zero points.
    template <typename Operand>
    __device__ __forceinline__ void take(uint32 (&codes)[4], int32 product) const {
        constexpr uint32 MIDDLE = 1 << (C::BITS - 1), PER_PACK = 16 / C::BITS;
        const typename C::Said& own = said[product / C::TOGETHER];
        const uint32 zeros[2] = {own.zero(0, MIDDLE), own.zero(1, MIDDLE)};
        Codes<Operand, C::BITS>::four(packs[product / PER_PACK].item + product % PER_PACK * (C::BITS / 4), zeros, codes);
    }
    __device__ __forceinline__ float scale(int32 product, int32 column) const { return widen(said[product / C::TOGETHER].scales[column]); }
};

// Where the terms of a lane begin in a product of a half, of which each has four.
template <typename C>
__device__ __forceinline__ int32 term_of(int32 product) {
    return threadIdx.x % 4 * (C::NEAR ? TERMS : 4) + product * (C::NEAR ? 4 : TERMS);
}

// What a lane has of the left operand for half a piece: four terms of a row of each eight in each product. Rows beyond the last one are
// that one once more: nobody writes what becomes of them.
template <typename L, typename T>
struct Left {
    typedef Pack<uint32, sizeof(T)> Four;
    // What is read at once where rows begin at multiples of it: 16 bytes, or 8 where no more terms lie together.
    static constexpr int32 AT_ONCE = L::NEAR && sizeof(T) == 2 ? 2 : 1;
    Four fours[L::EIGHTS][4];

    static __device__ __forceinline__ bool is_even(const T* rows, int32 terms) {
        return terms % (4 * AT_ONCE) == 0 && (uint64)rows % (4 * AT_ONCE * sizeof(T)) == 0;
    }
    // From a lane's first terms in each row on.
    __device__ __forceinline__ void fetch(const T* const (&from)[L::EIGHTS], int32 along) {
        constexpr int32 STEP = L::NEAR ? 4 : TERMS;
        #pragma unroll
        for (int32 eight = 0; eight < L::EIGHTS; eight++) {
            #pragma unroll
            for (int32 i = 0; i < 4; i += AT_ONCE) {
                const Pack<Four, AT_ONCE> fetched = *(const Pack<Four, AT_ONCE>*)(from[eight] + along + i * STEP);
                #pragma unroll
                for (int32 k = 0; k < AT_ONCE; k++) fours[eight][i + k] = fetched.item[k];
            }
        }
    }
    // The same where so many are left from there on, and zeros behind them.
    __device__ __forceinline__ void fetch_some(const T* const (&from)[L::EIGHTS], int32 along, int32 left) {
        constexpr int32 STEP = L::NEAR ? 4 : TERMS;
        #pragma unroll
        for (int32 eight = 0; eight < L::EIGHTS; eight++) {
            #pragma unroll
            for (int32 i = 0; i < 4; i++) fours[eight][i] = some(from[eight] + along + i * STEP, left - i * STEP);
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

// Adds the products of half a piece.
template <typename L, typename T>
__device__ __forceinline__ void add_products(float (&totals)[L::EIGHTS][4], const Half<typename L::Coding>& right, const Left<L, T>& left) {
    typedef typename Parts<T>::Operand Operand;
    constexpr int32 PARTS = Parts<T>::COUNT;
    #pragma unroll
    for (int32 first = 0; first < 4; first += L::TOGETHER) {
        float sums[L::EIGHTS][4] = {};
        #pragma unroll
        for (int32 product = first; product < first + L::TOGETHER; product++) {
            uint32 codes[4];
            right.template take<Operand>(codes, product);
            #pragma unroll
            for (int32 eight = 0; eight < L::EIGHTS; eight++) {
                uint32 parts[PARTS][2];
                Parts<T>::split(left.fours[eight][product], parts);
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
                totals[eight][at] = __fmaf_rn(sums[eight][at], right.scale(first, at / 2), totals[eight][at]);
            }
        }
    }
}

// Words that lie in shared memory.
__device__ __forceinline__ void load_words(uint32 (&to)[1], uint32 from) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(to[0]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_words(uint32 (&to)[2], uint32 from) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_words(uint32 (&to)[4], uint32 from) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// The pieces of a warp on their way to its shared memory, those of a group of tiles at once: of the groups of its block, one behind the
// other. Addresses are kept as instructions take them, since few instructions are what few rows wait for.
template <typename L>
struct Ring {
    typedef typename L::Piece Piece;
    static constexpr uint32 CHUNK = 16, SLOT = L::TILES * sizeof(Piece);
    const Piece* const weights;
    const NBits& s;
    // The next chunks of the lane to ask for, how many pieces there are with them in the group, and which group that is.
    const uint8* from[L::TILES];
    int32 left, group;
    // Where the lane finds its chunks and what is said of its columns in the first slot, and which bytes of slots are taken next.
    const uint32 chunks, said;
    uint32 at = 0;

    __device__ __forceinline__ Ring(Piece (&slots)[L::AHEAD][L::TILES], const void* weights, const NBits& s)
        : weights((const Piece*)weights), s(s), chunks(shared_address(&slots[0][0].packs[0][threadIdx.x % 32])),
          said(shared_address(&slots[0][0].said[0][threadIdx.x % 32 / 4])) {
        seek(blockIdx.y);
        #pragma unroll 1
        for (int32 i = 0; i < L::AHEAD; i++) advance();
    }
    __device__ __forceinline__ void seek(int32 own) {
        #pragma unroll
        for (int32 i = 0; i < L::TILES; i++) {
            // A last tile that is not there is the one before it once more.
            const Piece* const first = weights + (int64)min(own * L::TILES + i, s.tiles - 1) * L::pieces(s);
            from[i] = (const uint8*)(first + threadIdx.x / 32) + threadIdx.x % 32 * CHUNK;
        }
        group = own;
        left = L::pieces_of_warp(s);
    }
    // Asks for pieces in the place of those that were taken.
    __device__ __forceinline__ void advance() {
        __syncwarp();
        if (left > 0) {
            #pragma unroll
            for (int32 k = 0; k < L::TILES; k++) {
                #pragma unroll
                for (uint32 i = 0; i < sizeof(Piece); i += 32 * CHUNK) {
                    if (i + threadIdx.x % 32 * CHUNK < sizeof(Piece)) copy_ahead(chunks + at + k * sizeof(Piece) + i, from[k] + i, CHUNK);
                }
                from[k] += L::WARPS * sizeof(Piece);
            }
            if (--left == 0 && group + (int32)gridDim.y < L::groups(s)) seek(group + gridDim.y);
        }
        copies_commit();
        at = at + SLOT == L::AHEAD * SLOT ? 0 : at + SLOT;
    }
    __device__ __forceinline__ void wait() const {
        copies_wait<L::AHEAD - 1>();
        __syncwarp();
    }
    // Half of the piece of a tile; what is said of both halves stays.
    __device__ __forceinline__ void read(Half<typename L::Coding>& into, int32 tile, int32 half) const {
        #pragma unroll
        for (int32 i = 0; i < L::OWN_PACKS; i++) {
            load_words(into.packs[i].item, chunks + at + tile * sizeof(Piece) + (half * L::OWN_PACKS + i) * (32 * CHUNK));
        }
        if (half > 0 && L::GROUPS == 1) return;
        #pragma unroll
        for (int32 i = 0; i < L::OWN_GROUPS; i++) {
            typedef typename L::Said Said;
            uint32 words[sizeof(Said) / 4];
            load_words(words, said + at + tile * sizeof(Piece) + (half * L::OWN_GROUPS + i) * (8 * sizeof(Said)));
            into.said[i] = *(const Said*)words;
        }
    }
};

// The left operand for the pieces of a warp, one behind the other and from the first one again, in halves. All at once, and without a look
// at how many are left, where pieces are WHOLE.
template <typename L, typename T, bool WHOLE>
struct Lefts {
    static constexpr int32 STEP = L::WARPS * PIECE;
    // Where the lane's terms of the next piece begin in each row, how many are there from its first one on, and the next pieces.
    const T* from[L::EIGHTS];
    Left<L, T> halves[L::LEFTS];
    int32 left, next;
    const NBits& s;
    const bool is_even;

    __device__ __forceinline__ Lefts(const T* a, const NBits& s, int32 first) : s(s), is_even(Left<L, T>::is_even(a, s.terms)) {
        const int32 begin = threadIdx.x / 32 * PIECE;
        #pragma unroll
        for (int32 eight = 0; eight < L::EIGHTS; eight++) {
            const int32 row = min(first + eight * 8 + (int32)threadIdx.x % 32 / 4, s.rows - 1);
            from[eight] = a + (int64)row * s.terms + begin + term_of<L>(0);
        }
        left = s.terms - begin;
        next = L::pieces_of_warp(s);
        if (L::LEFTS == 2 && next > 0) fetch(0);
    }
    __device__ __forceinline__ void fetch(int32 half) {
        Left<L, T>& into = halves[half % L::LEFTS];
        if (WHOLE || (is_even && left >= (half + 1) * HALF)) into.fetch(from, half * HALF);
        else into.fetch_some(from, half * HALF, left - half * HALF - term_of<L>(0));
    }
    __device__ __forceinline__ void advance() {
        int32 step = STEP;
        if (--next == 0) {
            next = L::pieces_of_warp(s);
            step -= next * STEP;
        }
        #pragma unroll
        for (int32 eight = 0; eight < L::EIGHTS; eight++) from[eight] += step;
        left -= step;
    }
};

// The sums of a group of tiles over all pieces of a warp.
template <typename L, typename T, bool WHOLE>
__device__ __forceinline__ void sum_pieces(float (&totals)[L::TILES][L::EIGHTS][4], Ring<L>& ring, Lefts<L, T, WHOLE>& lefts, int32 count) {
    Half<typename L::Coding> right[L::TILES];
    #pragma unroll 1
    for (int32 n = 0; n < count; n++) {
        #pragma unroll
        for (int32 half = 0; half < 2; half++) {
            if (L::LEFTS == 1) lefts.fetch(half);
            if (half == 1) lefts.advance();
            // One half ahead where there is room for it.
            if (L::LEFTS == 2) lefts.fetch(1 - half);
            if (half == 0) ring.wait();
            #pragma unroll
            for (int32 tile = 0; tile < L::TILES; tile++) {
                ring.read(right[tile], tile, half);
                add_products<L>(totals[tile], right[tile], lefts.halves[half % L::LEFTS]);
            }
        }
        ring.advance();
    }
}

// Sums of the warps of a block: of two groups, so that those of one are added while others are multiplied.
template <typename L>
struct Sums {
    float of[2][L::WARPS][L::ROWS][L::COLUMNS];

    // Takes those of a warp, of which so many rows are there.
    __device__ __forceinline__ void take(int32 turn, const float (&totals)[L::TILES][L::EIGHTS][4], int32 rows) {
        #pragma unroll
        for (int32 i = 0; i < L::TILES; i++) {
            #pragma unroll
            for (int32 eight = 0; eight < L::EIGHTS; eight++) {
                #pragma unroll
                for (int32 at = 0; at < 4; at++) {
                    const int32 row = eight * 8 + threadIdx.x % 4 * 2 + at % 2;
                    if (row < rows) of[turn][threadIdx.x / 32][row][i * TILE + threadIdx.x % 32 / 4 + at / 2 * 8] = totals[i][eight][at];
                }
            }
        }
    }
    __device__ __forceinline__ float over_warps(int32 turn, int32 row, int32 column) const {
        float sum = 0;
        #pragma unroll
        for (int32 warp = 0; warp < L::WARPS; warp++) sum += of[turn][warp][row][column];
        return sum;
    }
};

// What a block has in shared memory.
template <typename L>
struct Memory {
    typename L::Piece slots[L::WARPS][L::AHEAD][L::TILES];
    Sums<L> sums;
};

// Groups of tiles in turns with the other blocks.
template <bool WHOLE, typename L, typename T, typename Y, typename Tail>
__device__ __forceinline__ void multiply_groups(Y* y, const T* a, Ring<L>& ring, Sums<L>& sums, const Tail& tail, const NBits& s) {
    constexpr int32 THREADS = L::WARPS * 32;
    const int32 first = blockIdx.x * L::ROWS, rows = min(s.rows - first, L::ROWS);
    Lefts<L, T, WHOLE> lefts(a, s, first);
    int32 turn = 0;
    for (int32 group = blockIdx.y; group < L::groups(s); group += gridDim.y, turn ^= 1) {
        float totals[L::TILES][L::EIGHTS][4] = {};
        sum_pieces(totals, ring, lefts, L::pieces_of_warp(s));
        sums.take(turn, totals, rows);
        __syncthreads();
        // Other warps write in each turn, where there are fewer results than threads.
        const int32 thread = (threadIdx.x + turn * (THREADS / 2)) % THREADS;
        for (int32 i = thread; i < rows * L::COLUMNS; i += THREADS) {
            const int32 row = i / L::COLUMNS, column = group * L::COLUMNS + i % L::COLUMNS;
            if (column >= s.columns) continue;
            const uint64 at = (uint64)(first + row) * s.columns + column;
            y[at] = tail.one(sums.over_warps(turn, row, i % L::COLUMNS), at, column);
        }
    }
}

template <typename L, typename T, typename Y, typename Tail>
__device__ __forceinline__ void multiply_codes(Y* y, const T* a, const void* weights, const Tail& tail, const NBits& s) {
    extern __shared__ Pack<uint32, 32> shared[];
    Memory<L>& memory = *(Memory<L>*)shared;
    // Nobody writes weights any more: they are asked for before the kernel in front is done.
    Ring<L> ring(memory.slots[threadIdx.x / 32], weights, s);
    after_previous();
    if (s.terms % PIECE == 0 && Left<L, T>::is_even(a, s.terms)) {
        multiply_groups<true>(y, a, ring, memory.sums, tail, s);
    } else {
        multiply_groups<false>(y, a, ring, memory.sums, tail, s);
    }
}

// Weights as numbers, a row for each column of the result: a warp writes a piece of a tile.
template <typename C, typename T>
__device__ __forceinline__ void write_weights(T* to, const void* weights, const NBits& s) {
    typedef typename Parts<T>::Operand Operand;
    const uint64 number = ((uint64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int32 pieces = (s.terms + PIECE - 1) / PIECE, tile = number / pieces, begin = number % pieces * PIECE;
    if (tile >= s.tiles) return;
    const typename C::Piece& piece = ((const typename C::Piece*)weights)[number];
    #pragma unroll
    for (int32 product = 0; product < C::PRODUCTS; product++) {
        const int32 part = product / 4, term = begin + part * HALF + term_of<C>(product % 4);
        Half<C> of;
        #pragma unroll
        for (int32 i = 0; i < C::OWN_PACKS; i++) of.packs[i] = piece.packs[part * C::OWN_PACKS + i][threadIdx.x % 32];
        #pragma unroll
        for (int32 i = 0; i < C::OWN_GROUPS; i++) of.said[i] = piece.said[part * C::GROUPS / 2 + i][threadIdx.x % 32 / 4];
        uint32 codes[4];
        of.template take<Operand>(codes, product % 4);
        #pragma unroll
        for (int32 half = 0; half < 2; half++) {
            const Pack<Operand, 2> pairs[2] = {*(const Pack<Operand, 2>*)(codes + half), *(const Pack<Operand, 2>*)(codes + 2 + half)};
            const float scale = of.scale(product % 4, half);
            Pack<T, 4> four;
            #pragma unroll
            for (int32 i = 0; i < 4; i++) four.item[i] = Narrow<T>::from(widen(pairs[i / 2].item[i % 2]) * scale);
            const int32 column = tile * TILE + threadIdx.x % 32 / 4 + half * 8;
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
