// Sums and products of all numbers up to each. Long lines are split into parts: the totals of all parts come first, and each
// part then begins with those before it.

struct Lines {
    // Numbers of a line lie `inner` elements apart; `inner` lines lie next to each other, `outer` times.
    int32 outer, length, inner;
    int32 parts, part;
};

template <typename W>
struct Product {
    typedef W Acc;
    static __device__ __forceinline__ W start() { return (W)1; }
    static __device__ __forceinline__ W join(W a, W b) { return a * b; }
};

// A number of any whole words of the thread so many lanes before.
template <typename A>
__device__ __forceinline__ A earlier(A x, uint32 lanes) {
    union Words {
        A whole;
        uint32 word[sizeof(A) / 4];
    } mine, other;
    mine.whole = x;
    #pragma unroll
    for (int i = 0; i < (int)(sizeof(A) / 4); i++) other.word[i] = __shfl_up_sync(0xffffffffu, mine.word[i], lanes);
    return other.whole;
}

// What the threads before this one of the block have, joined in order, and what all have.
template <typename Op>
__device__ __forceinline__ typename Op::Acc before(typename Op::Acc x, typename Op::Acc& all) {
    typedef typename Op::Acc A;
    __shared__ A warps[32];
    const uint32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, count = blockDim.x >> 5;
    for (uint32 lanes = 1; lanes < 32; lanes <<= 1) {
        const A other = earlier(x, lanes);
        if (lane >= lanes) x = Op::join(other, x);
    }
    // Whoever still reads what an earlier call left must be done.
    __syncthreads();
    if (lane == 31) warps[warp] = x;
    __syncthreads();
    A front = Op::start();
    all = Op::start();
    for (uint32 w = 0; w < count; w++) {
        if (w == warp) front = all;
        all = Op::join(all, warps[w]);
    }
    const A own = earlier(x, 1);
    return lane == 0 ? front : Op::join(front, own);
}

// Where number i of a line lies, counted in the order in which they are joined.
template <bool REVERSE>
__device__ __forceinline__ uint64 lies(uint32 i, const Lines& s) {
    return (uint64)(REVERSE ? s.length - 1 - i : i) * s.inner;
}

// Lines along memory; a block has a part, and a thread ITEMS neighbours at a time. WRITES: or only the total is wanted.
template <typename T, typename Op, bool EXCLUSIVE, bool REVERSE, bool WRITES>
__device__ __forceinline__ void scan_rows(T* y, const T* x, typename Op::Acc* totals, const Lines& s) {
    typedef typename Op::Acc A;
    constexpr int ITEMS = 4;
    x += (uint64)blockIdx.x * s.length;
    y += (uint64)blockIdx.x * s.length;
    totals += (uint64)blockIdx.x * s.parts;
    const uint32 first = blockIdx.y * s.part, last = min(s.length, first + s.part);
    A carry = Op::start();
    if (WRITES && s.parts > 1) {
        for (uint32 p = 0; p < blockIdx.y; p++) carry = Op::join(carry, totals[p]);
    }
    for (uint32 chunk = first; chunk < last; chunk += blockDim.x * ITEMS) {
        const uint32 own = chunk + threadIdx.x * ITEMS;
        A items[ITEMS], sum = Op::start();
        #pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            items[i] = own + i < last ? (A)widen(x[lies<REVERSE>(own + i, s)]) : Op::start();
            sum = Op::join(sum, items[i]);
        }
        A all;
        A front = Op::join(carry, before<Op>(sum, all));
        #pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const A with = Op::join(front, items[i]);
            if (WRITES && own + i < last) y[lies<REVERSE>(own + i, s)] = Narrow<T>::from(EXCLUSIVE ? front : with);
            front = with;
        }
        carry = Op::join(carry, all);
    }
    if (!WRITES && threadIdx.x == 0) totals[blockIdx.y] = carry;
}

// Lines side by side; a thread has a part of one.
template <typename T, typename Op, bool EXCLUSIVE, bool REVERSE, bool WRITES>
__device__ __forceinline__ void scan_columns(T* y, const T* x, typename Op::Acc* totals, const Lines& s) {
    typedef typename Op::Acc A;
    const uint32 line = blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= (uint32)s.outer * s.inner) return;
    const uint64 start = (uint64)(line / s.inner) * s.length * s.inner + line % s.inner;
    x += start;
    y += start;
    totals += (uint64)line * s.parts;
    const uint32 first = blockIdx.y * s.part, last = min(s.length, first + s.part);
    A carry = Op::start();
    if (WRITES && s.parts > 1) {
        for (uint32 p = 0; p < blockIdx.y; p++) carry = Op::join(carry, totals[p]);
    }
    #pragma unroll 4
    for (uint32 i = first; i < last; i++) {
        const A with = Op::join(carry, (A)widen(x[lies<REVERSE>(i, s)]));
        if (WRITES) y[lies<REVERSE>(i, s)] = Narrow<T>::from(EXCLUSIVE ? carry : with);
        carry = with;
    }
    if (!WRITES) totals[blockIdx.y] = carry;
}
