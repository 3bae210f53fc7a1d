// Matrix products of any element type with operands at any strides: what no library and no tensor core takes. `Tail` is
// written for what follows the product: `one` gives an element of the result, `pack` eight of a row.

struct Product {
    int32 m, n, k;
    // Elements from one row to the next and from one column to the next.
    int32 left[2], right[2];
    // Extents of the batch, the outermost first, and where its matrices lie along them.
    int32 batch[6], left_steps[6], right_steps[6];
};

// Where a matrix of the batch lies.
__device__ __forceinline__ uint64 place(const int32* extents, const int32* steps, uint32 number) {
    uint64 at = 0;
    for (int32 axis = 5; axis >= 0; axis--) {
        at += (uint64)(number % extents[axis]) * steps[axis];
        number /= extents[axis];
    }
    return at;
}

// What sums are taken in: integers wrap, and so have no sign.
template <typename T>
struct Sum {
    typedef typename Wide<T>::type type;
};
template <>
struct Sum<int8> {
    typedef uint32 type;
};
template <>
struct Sum<uint8> {
    typedef uint32 type;
};
template <>
struct Sum<int16> {
    typedef uint32 type;
};
template <>
struct Sum<uint16> {
    typedef uint32 type;
};
template <>
struct Sum<int32> {
    typedef uint32 type;
};
template <>
struct Sum<int64> {
    typedef uint64 type;
};

// A sum as the number that the product is.
template <typename T>
struct Summed {
    template <typename S>
    static __device__ __forceinline__ typename Wide<T>::type from(S sum) {
        return (typename Wide<T>::type)sum;
    }
};

#define SIDE 64
#define DEPTH 16
#define SIDE_THREADS 256

// A tile of an operand: `lines` along the result, `depth` along the sums, zero where there is nothing.
template <typename T, typename S>
__device__ __forceinline__ void gather(S (*tile)[SIDE + 4], const T* x, int32 line, int32 lines, int32 depth, int32 depths,
                                       int32 line_step, int32 depth_step) {
    for (int32 i = threadIdx.x; i < SIDE * DEPTH; i += SIDE_THREADS) {
        // Neighbouring threads read neighbours in memory.
        const int32 l = depth_step == 1 ? i / DEPTH : i % SIDE, d = depth_step == 1 ? i % DEPTH : i / SIDE;
        const bool there = line + l < lines && depth + d < depths;
        tile[d][l] = there ? (S)widen(x[(uint64)(line + l) * line_step + (uint64)(depth + d) * depth_step]) : (S)0;
    }
}

template <typename T, typename Y, typename Tail>
__device__ __forceinline__ void multiply(Y* y, const T* a, const T* b, const Tail& tail, const Product& s) {
    typedef typename Sum<T>::type S;
    __shared__ S left[DEPTH][SIDE + 4], right[DEPTH][SIDE + 4];
    const uint32 across = (s.n + SIDE - 1) / SIDE, tiles = across * ((s.m + SIDE - 1) / SIDE);
    const uint32 batch = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    const int32 row = tile / across * SIDE, column = tile % across * SIDE;
    a += place(s.batch, s.left_steps, batch);
    b += place(s.batch, s.right_steps, batch);
    const int32 r = threadIdx.x / 16 * 4, c = threadIdx.x % 16 * 4;
    S sums[4][4] = {};
    for (int32 depth = 0; depth < s.k; depth += DEPTH) {
        gather(left, a, row, s.m, depth, s.k, s.left[0], s.left[1]);
        gather(right, b, column, s.n, depth, s.k, s.right[1], s.right[0]);
        __syncthreads();
        #pragma unroll
        for (int32 d = 0; d < DEPTH; d++) {
            #pragma unroll
            for (int32 i = 0; i < 4; i++) {
                #pragma unroll
                for (int32 j = 0; j < 4; j++) sums[i][j] += left[d][r + i] * right[d][c + j];
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int32 i = 0; i < 4; i++) {
        #pragma unroll
        for (int32 j = 0; j < 4; j++) {
            if (row + r + i >= s.m || column + c + j >= s.n) continue;
            const uint64 at = ((uint64)batch * s.m + row + r + i) * s.n + column + c + j;
            y[at] = tail.one(Summed<T>::from(sums[i][j]), at, column + c + j);
        }
    }
}
