// Products whose rows are brought together before they are stored: normalized, reduced, or given a scale. Behind `gemm.cu`. The blocks
// of a cluster have the columns of a row, and send one another what each found in its own.

struct RowProduct {
    Product product;
    float epsilon;
};

// What a block found of a row.
typedef Pack<float, 2> Found;

struct Plus {
    static __device__ __forceinline__ float start() { return 0; }
    static __device__ __forceinline__ float join(float a, float b) { return a + b; }
};
struct Least {
    static __device__ __forceinline__ float start() { return __int_as_float(0x7f800000); }
    static __device__ __forceinline__ float join(float a, float b) { return f_min(a, b); }
};
struct Most {
    static __device__ __forceinline__ float start() { return __int_as_float(0xff800000); }
    static __device__ __forceinline__ float join(float a, float b) { return f_max(a, b); }
};

// Joins a number of each of so many neighbours in a warp.
template <int LANES, typename Op>
__device__ __forceinline__ float over_lanes(float x) {
    #pragma unroll
    for (int32 lanes = LANES / 2; lanes > 0; lanes /= 2) x = Op::join(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

// The numbers of a thread, so many of which are there, and those of its neighbours.
template <int LANES, typename Op, typename Each>
__device__ __forceinline__ float over_eights(const float (&x)[8], int32 there, const Each& each) {
    float start = Op::start();
    #pragma unroll
    for (int32 k = 0; k < 8; k++) start = k < there ? Op::join(start, each(x[k])) : start;
    return over_lanes<LANES, Op>(start);
}

// LayerNormalization where CENTRED, else RMSNormalization. Of the columns of a block: their mean and the sum of squares around it;
// then the mean and what is multiplied with.
template <bool CENTRED, typename S, bool SCALED, bool SHIFTED>
struct NormalizeRow {
    static constexpr bool ELEMENTS = true;
    const S *scale, *shift;

    template <int LANES>
    __device__ __forceinline__ Found of(const float (&x)[8], int32 there, int32 columns) const {
        const auto same = [](float x) { return x; };
        const float mean = CENTRED ? over_eights<LANES, Plus>(x, there, same) / columns : 0;
        const auto square = [&](float x) { return f_square(x - mean); };
        return {{mean, over_eights<LANES, Plus>(x, there, square)}};
    }

    // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    __device__ __forceinline__ Found join(const Found& a, int32 before, const Found& b, int32 columns) const {
        const float step = b.item[0] - a.item[0], part = (float)columns / (before + columns);
        return {{a.item[0] + step * part, a.item[1] + b.item[1] + f_square(step) * part * before}};
    }

    __device__ __forceinline__ Found whole(const Found& all, int32 columns, float epsilon) const {
        return {{all.item[0], 1.0f / sqrtf(all.item[1] / columns + epsilon)}};
    }

    __device__ __forceinline__ void apply(float (&x)[8], const Found& row, int32 column, int32 there) const {
        #pragma unroll
        for (int32 k = 0; k < 8; k++) {
            if (k >= there) break;
            x[k] = (x[k] - row.item[0]) * row.item[1];
            if constexpr (SCALED) x[k] *= (float)widen(scale[column + k]);
            if constexpr (SHIFTED) x[k] += (float)widen(shift[column + k]);
        }
    }

    __device__ __forceinline__ void store(const Found&, uint64) const {}
};

// A reduction to one number for each row.
template <typename Op, bool MEAN, typename Y>
struct ReduceRow {
    static constexpr bool ELEMENTS = false;
    Y* y;

    template <int LANES>
    __device__ __forceinline__ Found of(const float (&x)[8], int32 there, int32) const {
        return {{over_eights<LANES, Op>(x, there, [](float x) { return x; }), 0}};
    }

    __device__ __forceinline__ Found join(const Found& a, int32, const Found& b, int32) const {
        return {{Op::join(a.item[0], b.item[0]), 0}};
    }

    __device__ __forceinline__ Found whole(const Found& all, int32 columns, float) const {
        return {{MEAN ? all.item[0] / columns : all.item[0], 0}};
    }

    __device__ __forceinline__ void apply(float (&)[8], const Found&, int32, int32) const {}
    __device__ __forceinline__ void store(const Found& row, uint64 at) const { y[at] = Narrow<Y>::from(row.item[0]); }
};

// DynamicQuantizePerToken: the scale of a row, and its inverse, which is 0 where a number of the row is not finite.
struct TokenRow {
    static constexpr bool ELEMENTS = true;
    float* scales;

    template <int LANES>
    __device__ __forceinline__ Found of(const float (&x)[8], int32 there, int32) const {
        return {{over_eights<LANES, Most>(x, there, [](float x) { return fabsf(x); }), 0}};
    }

    __device__ __forceinline__ Found join(const Found& a, int32, const Found& b, int32) const {
        return {{f_max(a.item[0], b.item[0]), 0}};
    }

    __device__ __forceinline__ Found whole(const Found& most, int32, float) const {
        const TokenScale scale(most.item[0]);
        return {{scale.scale, scale.inverse}};
    }

    __device__ __forceinline__ void apply(float (&x)[8], const Found& row, int32, int32) const {
        #pragma unroll
        for (int32 k = 0; k < 8; k++) x[k] = TokenScale::code(x[k], row.item[1]);
    }

    __device__ __forceinline__ void store(const Found& row, uint64 at) const { scales[at] = row.item[0]; }
};

// What is behind rows of which nothing is left but what was found.
struct NoTail {
    __device__ __forceinline__ bool wide() const { return true; }
};

// ACROSS blocks of a cluster share rows; `kept` gets what is brought together, where there is such an array.
template <typename L, int ACROSS, bool HELD, typename T, typename Y, typename K, typename Before, typename Row, typename After>
__device__ __forceinline__ void gemm_rows(Y* y, K* kept, const T* a, const T* b, const Before& before, const Row& step,
                                          const After& after, const RowProduct& given) {
    extern __shared__ __align__(128) uint8 memory[];
    constexpr int32 LANES = L::BN / 8;
    static_assert(L::SPLIT == 1 && L::SHARE % L::THREADS == 0 && ACROSS <= LANES && LANES <= 32);
    const Product& s = given.product;
    const uint32 down = (s.m + L::BM - 1) / L::BM, batch = blockIdx.x / down;
    const int32 row = blockIdx.x % down * L::BM, column = blockIdx.z * L::BN, columns = min(s.n - column, L::BN);
    float* laid = (float*)memory;
    Found* found = (Found*)(memory + L::OWN_BYTES);
    if constexpr (ACROSS > 1) cluster_greet();
    float sums[L::WM / 16][L::WN / 8][4] = {};
    sum_up<L, HELD>(sums, memory, a, b, s, Corner{batch, row, column});
    lay_out<L>(laid, sums);
    if constexpr (ACROSS > 1) cluster_meet();
    // How many of eight neighbours are there, and where in the result the first one is.
    const auto there = [&](int32 r, int32 c) { return row + r < s.m ? min(max(columns - c, 0), 8) : 0; };
    const auto index = [&](int32 r, int32 c) { return ((uint64)batch * s.m + row + r) * s.n + column + c; };
    const bool even = s.n % 8 == 0 && (uint64)kept % sizeof(Pack<K, 8>) == 0 && before.wide();
    each_eight<L>([&](int32, int32 r, int32 c) {
        float eight[8];
        float* own = laid + r * L::PITCH + c;
        collect<L>(eight, own);
        const int32 count = there(r, c);
        const uint64 at = index(r, c);
        if (even && count == 8) {
            const Pack<float, 8> pack = before.pack(eight, at, column + c);
            #pragma unroll
            for (int32 k = 0; k < 8; k++) own[k] = eight[k] = pack.item[k];
            if (kept) {
                Pack<K, 8> rounded;
                #pragma unroll
                for (int32 k = 0; k < 8; k++) rounded.item[k] = Narrow<K>::from(eight[k]);
                *(Pack<K, 8>*)(kept + at) = rounded;
            }
        } else {
            #pragma unroll
            for (int32 k = 0; k < 8; k++) {
                if (k >= count) break;
                own[k] = eight[k] = before.one(eight[k], at + k, column + c + k);
                if (kept) kept[at + k] = Narrow<K>::from(eight[k]);
            }
        }
        const Found part = step.template of<LANES>(eight, count, columns);
        const uint32 lane = threadIdx.x % LANES;
        if constexpr (ACROSS > 1) {
            if (lane < ACROSS) send(part, shared_address(found + blockIdx.z * L::BM + r), lane);
        } else if (lane == 0) {
            found[r] = part;
        }
    });
    if constexpr (ACROSS > 1) cluster_wait();
    else __syncthreads();
    const bool wide = s.n % 8 == 0 && (uint64)y % sizeof(Pack<Y, 8>) == 0 && after.wide();
    each_eight<L>([&](int32, int32 r, int32 c) {
        const int32 count = there(r, c);
        if (count == 0) return;
        Found all = found[r];
        #pragma unroll
        for (int32 from = 1; from < ACROSS; from++) {
            all = step.join(all, from * L::BN, found[from * L::BM + r], min(s.n - from * L::BN, L::BN));
        }
        all = step.whole(all, s.n, given.epsilon);
        if (column + c == 0) step.store(all, (uint64)batch * s.m + row + r);
        if constexpr (Row::ELEMENTS) {
            float eight[8];
            collect<L>(eight, laid + r * L::PITCH + c);
            step.apply(eight, all, column + c, count);
            const uint64 at = index(r, c);
            if (wide && count == 8) {
                *(Pack<Y, 8>*)(y + at) = after.pack(eight, at, column + c);
            } else {
                for (int32 k = 0; k < count; k++) y[at + k] = after.one(eight[k], at + k, column + c + k);
            }
        }
    });
}
