// Convolutions and products of 8 bits on tensor cores: integers are multiplied and summed exactly, floats as tensor cores do it, and
// what follows is done to scaled sums. Behind `pixels.cuh`, `quantized.cuh`, `pairs.cuh` and a `Tail`; where warpgroups multiply,
// behind `groups.cuh` too.

// 16 x 32 by 32 x 8, added to the sums.
#define MULTIPLY_8_BITS(TYPE, PTX)                                                                                     \
    __device__ __forceinline__ void multiply_add(TYPE, int32(&d)[4], const uint32(&a)[4], uint32 b0, uint32 b1) {      \
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." PTX ".s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "       \
                     "{%8, %9}, {%0, %1, %2, %3};"                                                                     \
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                  \
    }
MULTIPLY_8_BITS(TwoSigned, "s8")
MULTIPLY_8_BITS(TwoUnsigned, "u8")
__device__ __forceinline__ void multiply_add(TwoFloats, float (&d)[4], const uint32 (&a)[4], uint32 b0, uint32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#ifdef WARPGROUPS
// 64 x 32 by 32 x COLUMNS, added to the sums: 16 rows in the registers of each warp, which lie as `mma.m16n8k32` has them.
#define GROUP_8_BITS(TYPE, SUM, KIND, PTX, SIGNS, COLUMNS, COUNT, a0, a1, a2, a3, b)                                   \
    __device__ __forceinline__ void group_add(TYPE, SUM(&d)[COUNT], const uint32(&a)[4], uint64 right) {               \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k32." PTX " {" NAMES_##COUNT "}, {" a0 ", " a1      \
                     ", " a2 ", " a3 "}, " b ", 1" SIGNS ";"                                                           \
                     : SUMS_##COUNT(KIND, 0)                                                                           \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));                                        \
    }
#define GROUPS_8_BITS(TYPE, SUM, KIND, PTX, SIGNS)                                                                     \
    GROUP_8_BITS(TYPE, SUM, KIND, PTX, SIGNS, 64, 32, "%32", "%33", "%34", "%35", "%36")                               \
    GROUP_8_BITS(TYPE, SUM, KIND, PTX, SIGNS, 128, 64, "%64", "%65", "%66", "%67", "%68")                              \
    GROUP_8_BITS(TYPE, SUM, KIND, PTX, SIGNS, 256, 128, "%128", "%129", "%130", "%131", "%132")
GROUPS_8_BITS(TwoSigned, int32, INTEGER_SUM, "s32.s8.s8", "")
GROUPS_8_BITS(TwoUnsigned, int32, INTEGER_SUM, "s32.u8.s8", "")
GROUPS_8_BITS(TwoFloats, float, FLOAT_SUM, "f32.e4m3.e4m3", ", 1, 1")

// What a warp of a group brings of a step; the right operand is read where it lies.
template <typename L>
struct LeftFragments {
    static constexpr int TIMES = L::BK / 16;
    uint32 a[TIMES][L::WM / 16][4];

    template <typename Left, typename Right>
    __device__ __forceinline__ void read(const Left& left, const Right&) {
        #pragma unroll
        for (uint32 time = 0; time < TIMES; time++) {
            #pragma unroll
            for (uint32 i = 0; i < L::WM / 16; i++) left(a[time][i], i, time * 16);
        }
    }
};

// How the rows of the weights lie in shared memory, for the instruction: their 16-byte parts are swapped in patterns of 8 rows.
template <typename L>
__device__ __forceinline__ uint64 described_rows(uint32 address) {
    constexpr uint32 LINE = L::BK * 2;
    static_assert(LINE == 128 || LINE == 64, "rows of other lengths are swapped otherwise");
    const uint64 swapped = LINE == 128 ? 1 : 2;
    return (uint64)(address >> 4 & 0x3fff) | 1ull << 16 | (uint64)(8 * LINE >> 4) << 32 | swapped << 62;
}

// Takes one step after another: what the next one needs comes while the products of this one go on, and takes the place of a step
// whose products are done. Registers of the left operand are read for as long as products go on, which the compiler does not
// know: the next ones are brought behind them.
template <typename L, typename T, typename Sum, typename Load, typename Into>
__device__ __forceinline__ void take_group_steps(Sum (&sums)[L::WM / 16][L::WN / 8][4], int32 steps, const Load& load,
                                                 const Into& read, uint32 stages) {
    static_assert(L::STAGES >= 3 && L::WARPS_K == 1, "two steps are in use while others come");
    typedef Sum Columns[L::WN / 2];
    // Weights come by plain copies, which products see behind a fence alone.
    const auto meet = [] {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
    };
    copies_wait<L::STAGES - 2>();
    meet();
    #pragma unroll 1
    for (int32 step = 0; step < steps; step++) {
        const uint32 right = stages + step % L::STAGES * L::B_BYTES + L::column() * L::BK * 2;
        LeftFragments<L> left;
        read(step, left);
        products_begin();
        #pragma unroll
        for (int32 time = 0; time < LeftFragments<L>::TIMES; time++) {
            #pragma unroll
            for (int32 i = 0; i < L::WM / 16; i++) {
                group_add(T(), *(Columns*)&sums[i], left.a[time][i], described_rows<L>(right + time * 32));
            }
        }
        products_commit();
        if (step + 1 < steps) {
            copies_wait<L::STAGES - 3>();
            meet();
            if (step + L::STAGES - 1 < steps) load(step + L::STAGES - 1);
            copies_commit();
        }
        products_wait<0>();
    }
    copies_wait<0>();
    __syncthreads();
}

template <typename L, typename T>
struct Multiplier {
    typedef LeftFragments<L> Read;

    template <typename Sum, typename Load, typename Into>
    static __device__ __forceinline__ void take(Sum (&sums)[L::WM / 16][L::WN / 8][4], int32 steps, const Load& load,
                                                const Into& read, uint32 stages) {
        take_group_steps<L, T>(sums, steps, load, read, stages);
    }
};
#else
template <typename L, typename T>
using Multiplier = Warps<L, T>;
#endif

template <typename L, bool FILLED, typename T, typename Places>
__device__ __forceinline__ void convolve(Y0* y, const T* x, const T* w, const Channels& channels, const Tail& tail,
                                         const Shape& s, const Places& places, uint32 outside) {
    extern __shared__ __align__(1024) uint8 memory[];
    const Place place = Place::of_block<L>(s);
    typedef typename SumOf<T>::type Sum;
    Sum sums[L::WM / 16][L::WN / 8][4] = {};
    const bool wide = s.results % 8 == 0 && s.y_step % 8 == 0 && (uint64)y % sizeof(Pack<Y0, 8>) == 0 && tail.wide();
    // Other operands come while sums are taken, where they need few registers.
    constexpr int32 EACH = L::EACH <= 8 ? L::EACH : 1;
    constexpr bool AHEAD = EACH == L::EACH;
    Tail::Read others[EACH];
    const auto while_loading = [&] {
        if (!AHEAD || !wide) return;
        each_eight<L, EACH>([&](int32 number, int32 row, int32 column) {
            const int64 pixel = place.pixel(row, s);
            const int32 own = place.first + column;
            if (pixel < 0 || own >= s.results) return;
            const int32 channel = places.channel(own);
            others[number] = tail.read((uint64)places.pixel(pixel, own) * places.channels(s.results) + channel, channel);
        });
    };
    sum_pixels<L, true, FILLED, Multiplier<L, T>>(sums, memory, x, w, place, s, outside, while_loading);
    // A thread writes the same channels wherever it writes; lists are long enough for a whole eight.
    Pack<float, 8> scale = {}, shift = {};
    Pack<int32, 8> first = {};
    const int32 own = place.first + (int32)(threadIdx.x % (L::BN / 8)) * 8;
    if (own < s.results) {
        scale = *(const Pack<float, 8>*)(channels.scales + own);
        shift = *(const Pack<float, 8>*)(channels.shifts() + own);
        first = *(const Pack<int32, 8>*)(channels.starts() + own);
    }
    finish<L, EACH>((Sum*)memory, sums, [&](int32 number, int32 row, int32 column, const Sum* laid) {
        const int64 seen = place.pixel(row, s);
        const int32 own = place.first + column;
        if (seen < 0 || own >= s.results) return;
        const int32 channel = places.channel(own), results = places.channels(s.results);
        const int64 pixel = places.pixel(seen, own);
        Sum whole[8];
        collect<L>(whole, laid);
        float eight[8];
        #pragma unroll
        for (int32 k = 0; k < 8; k++) eight[k] = scaled(whole[k], first.item[k], scale.item[k], shift.item[k]);
        const uint64 at = (uint64)pixel * results + channel;
        Y0* const to = y + pixel * s.y_step + channel;
        if (wide) {
            *(Pack<Y0, 8>*)to = tail.pack(eight, AHEAD ? others[number] : tail.read(at, channel));
        } else {
            for (int32 k = 0; k < 8 && channel + k < results; k++) to[k] = tail.one(eight[k], at + k, channel + k);
        }
    });
}
