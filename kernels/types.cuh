// Element types, the types they are computed in, and the functions of one number. NVRTC has no headers of its own.

typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

struct float16 {
    uint16 bits;
};

struct bfloat16 {
    uint16 bits;
};

// From Hopper on a kernel may start while the one before it in its stream still runs: before a thread reads or writes what others
// do, it calls this. The one behind it may start then.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// The same, which stands once for each kernel of a source: this is how whoever launches them knows that they wait.
__device__ __forceinline__ void after_previous() { wait_for_previous(); }

// What is loaded and stored at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
    T item[N];
};

// The type that an element type is computed in.
template <typename T>
struct Wide {
    typedef T type;
};
template <>
struct Wide<float16> {
    typedef float type;
};
template <>
struct Wide<bfloat16> {
    typedef float type;
};

template <typename T>
__device__ __forceinline__ T widen(T x) {
    return x;
}
__device__ __forceinline__ float widen(float16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
__device__ __forceinline__ float widen(bfloat16 x) {
    return __uint_as_float((uint32)x.bits << 16);
}

// Neighbours at once: two halves of a register are widened where they are, and not taken out of it first.
template <typename T, int N>
__device__ __forceinline__ void widen_pack(typename Wide<T>::type (&wide)[N], const Pack<T, N>& pack) {
#pragma unroll
    for (int32 k = 0; k < N; k++) wide[k] = widen(pack.item[k]);
}
template <int N>
__device__ __forceinline__ void widen_pack(float (&wide)[N], const Pack<float16, N>& pack) {
    if constexpr (N % 2 == 0) {
#pragma unroll
        for (int32 k = 0; k < N; k += 2) {
            const uint32 both = *(const uint32*)&pack.item[k];
            asm("{\n.reg .f16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
                : "=f"(wide[k]), "=f"(wide[k + 1]) : "r"(both));
        }
    } else {
#pragma unroll
        for (int32 k = 0; k < N; k++) wide[k] = widen(pack.item[k]);
    }
}

// To an element type; rounds to nearest, ties to even.
template <typename T>
struct Narrow {
    template <typename W>
    static __device__ __forceinline__ T from(W x) {
        return (T)x;
    }
};
template <>
struct Narrow<bool> {
    template <typename W>
    static __device__ __forceinline__ bool from(W x) {
        return x != (W)0;
    }
};
template <>
struct Narrow<float16> {
    template <typename W>
    static __device__ __forceinline__ float16 from(W x) {
        float16 narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"((float)x));
        return narrow;
    }
};
template <>
struct Narrow<bfloat16> {
    template <typename W>
    static __device__ __forceinline__ bfloat16 from(W x) {
        uint32 bits = __float_as_uint((float)x);
        // A NaN must stay one: rounding up could carry it into infinity.
        bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        bits += 0x7fffu + ((bits >> 16) & 1u);
        bfloat16 narrow;
        narrow.bits = nan ? (uint16)0x7fc0u : (uint16)(bits >> 16);
        return narrow;
    }
};

// Leaves what is wrong with the data where the processor reads it; one fault of many is enough.
__device__ __forceinline__ void complain(int64* flag, int64 what) { *(volatile int64*)flag = what; }

#define FUNCTION template <typename W> __device__ __forceinline__ W

// What the 16 bits of T hold in the place of a number.
template <typename T>
__device__ __forceinline__ float f_round(float x) {
    return widen(Narrow<T>::from(x));
}

// A product that is rounded by itself: the compiler makes no fused multiply-add of it and a sum that a model wrote behind it.
__device__ __forceinline__ float f_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double f_product(double a, double b) { return __dmul_rn(a, b); }

FUNCTION f_relu(W x) { return x < (W)0 ? (W)0 : x; }
FUNCTION f_leaky_relu(W x, W a) { return x < (W)0 ? f_product(a, x) : x; }
FUNCTION f_thresholded_relu(W x, W a) { return x > a ? x : (W)0; }
FUNCTION f_sigmoid(W x) { return (W)1 / ((W)1 + exp(-x)); }
FUNCTION f_silu(W x) { return x / ((W)1 + exp(-x)); }
FUNCTION f_elu(W x, W a) { return x < (W)0 ? f_product(a, expm1(x)) : x; }
FUNCTION f_selu(W x, W a, W g) { return f_product(g, f_elu(x, a)); }
FUNCTION f_celu(W x, W a) { return x < (W)0 ? f_product(a, expm1(x / a)) : x; }
// Not by way of 1 + erf(x), which far below zero has nothing but rounding errors left.
FUNCTION f_gelu(W x) { return f_product((W)0.5 * x, erfc(x * (W)-0.70710678118654752440)); }
FUNCTION f_gelu_tanh(W x) { return x / ((W)1 + exp((W)-1.59576912160573071176 * (x + (W)0.044715 * x * x * x))); }
FUNCTION f_softplus(W x) { return fmax(x, (W)0) + log1p(exp(-fabs(x))); }
FUNCTION f_mish(W x) { return f_product(x, tanh(f_softplus(x))); }
FUNCTION f_softsign(W x) { return x / ((W)1 + fabs(x)); }
FUNCTION f_sign(W x) { return x > (W)0 ? (W)1 : (x < (W)0 ? (W)-1 : x); }
FUNCTION f_reciprocal(W x) { return (W)1 / x; }
// x to the power of 0.5, where -0 and minus infinity have other ones than roots.
FUNCTION f_power_of_half(W x) { return x < (W)0 && x + x == x ? -x : sqrt(x + (W)0); }
FUNCTION f_square(W x) { return x * x; }
// A NaN stays one, as numpy's maximum has it.
FUNCTION f_max(W a, W b) { return a >= b || a != a ? a : b; }
FUNCTION f_min(W a, W b) { return a <= b || a != a ? a : b; }
FUNCTION f_clip(W x, W low, W high) { return f_min(f_max(x, low), high); }
FUNCTION f_hard_sigmoid(W x, W a, W b) { return f_clip(a * x + b, (W)0, (W)1); }
FUNCTION f_hard_swish(W x) { return f_product(x, f_hard_sigmoid(x, (W)(1.0 / 6.0), (W)0.5)); }

// The nearest integer, halves to even, with a zero point, between the least and the greatest of 8 bits. NaN counts as 0.
__device__ __forceinline__ int32 f_code(float x, int32 zero, int32 low, int32 high) {
    return min(max(__float2int_rn(x), low - zero), high - zero) + zero;
}

// The same where all are known: around zero by an instruction that rounds and saturates.
template <int32 ZERO, int32 LOW, int32 HIGH>
__device__ __forceinline__ int32 f_code(float x) {
    int32 code;
    if constexpr (ZERO == 0 && LOW == 0 && HIGH == 255) asm("cvt.rni.sat.u8.f32 %0, %1;" : "=r"(code) : "f"(x));
    else if constexpr (ZERO == 0 && LOW == -128 && HIGH == 127) asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(code) : "f"(x));
    else code = f_code(x, ZERO, LOW, HIGH);
    return code;
}

// A number to divide by, prepared: numbers below 2^31 are divided by a multiplication.
struct Divisor {
    uint32 size, multiplier, shift;

    __device__ __forceinline__ uint32 divide(uint32 number) const {
        return (__umulhi(number, multiplier) + number) >> shift;
    }

    // Takes the last digit off a number in this base.
    __device__ __forceinline__ uint32 take(uint32& number) const {
        const uint32 rest = divide(number), digit = number - rest * size;
        number = rest;
        return digit;
    }
};

// Where something lies in shared memory, as instructions name it.
__device__ __forceinline__ uint32 shared_address(const void* pointer) { return (uint32)__cvta_generic_to_shared(pointer); }

// N neighbours: at once where they are aligned, else one by one.
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> fetch(const T* from) {
    if ((uint64)from % sizeof(Pack<T, N>) == 0) return *(const Pack<T, N>*)from;
    Pack<T, N> pack;
#pragma unroll
    for (int32 k = 0; k < N; k++) pack.item[k] = from[k];
    return pack;
}
template <int N, typename T>
__device__ __forceinline__ void store(T* to, const Pack<T, N>& pack) {
    if ((uint64)to % sizeof(Pack<T, N>) == 0) {
        *(Pack<T, N>*)to = pack;
        return;
    }
#pragma unroll
    for (int32 k = 0; k < N; k++) to[k] = pack.item[k];
}

// As the functions above, for results that 16 bits hold: off by far less than their rounding. Numbers that are no more than
// 2^-126 are zero.
__device__ __forceinline__ float fast_exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
__device__ __forceinline__ float fast_reciprocal(float x) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
}
__device__ __forceinline__ float f_fast_sigmoid(float x) { return fast_reciprocal(1.0f + fast_exp2(-1.44269504f * x)); }
__device__ __forceinline__ float f_fast_silu(float x) { return x * f_fast_sigmoid(x); }
__device__ __forceinline__ float f_fast_tanh(float x) {
    // Near zero the difference of two numbers near one says little.
    const float square = x * x, small = x * (1.0f + square * (-0.33333333f + square * 0.13333333f));
    return fabsf(x) < 0.1f ? small : 1.0f - 2.0f * fast_reciprocal(fast_exp2(2.88539008f * x) + 1.0f);
}
// As f_relu: a NaN stays one.
__device__ __forceinline__ float fast_positive(float x) {
#if __CUDA_ARCH__ >= 800
    float positive;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(x));
    return positive;
#else
    return f_relu(x);
#endif
}
// x less what the tail of the normal distribution takes: 2^-u^2 times a polynomial, fitted to 2e-5 of it everywhere. 0.8493218
// squared turns e^(-x^2/2) into a power of 2.
__device__ __forceinline__ float f_fast_gelu(float x) {
    const float u = 0.8493218f * fabsf(fminf(x, 100.0f)), t = fast_reciprocal(1.0f + 0.43269818f * u);
    const float high = 0.076662907f + t * (0.26305249f - t * 0.11044341f);
    const float tail = u * t * (0.17137098f + t * (0.18805371f + t * high));
    return fast_positive(x) - tail * fast_exp2(-u * u);
}
__device__ __forceinline__ float f_fast_gelu_tanh(float x) {
    return x * f_fast_sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
}
__device__ __forceinline__ float f_fast_softplus(float x) { return fmaxf(x, 0.0f) + log1pf(__expf(-fabsf(x))); }
// tanh(ln(1 + e)) is n / (n + 2) for n = e (e + 2).
__device__ __forceinline__ float f_fast_mish(float x) {
    const float e = __expf(fminf(x, 20.0f)), n = e * (e + 2.0f);
    return x * __fdividef(n, n + 2.0f);
}

// A bound that is NaN is none.
FUNCTION f_at_least(W x, W low) { return low != low ? x : f_max(x, low); }
FUNCTION f_at_most(W x, W high) { return high != high ? x : f_min(x, high); }

// What a convolution does with a result in the end; `numbers` are a slope, bounds, or a factor and a summand.
FUNCTION f_activated(W x, int32 activation, const float (&numbers)[2]) {
    switch (activation) {
        // Not a product with 0, which of an infinite number is none.
        case 1: return f_relu(x);
        case 9: return f_leaky_relu(x, (W)numbers[0]);
        case 2: return f_sigmoid(x);
        case 3: return f_silu(x);
        case 4: return tanh(x);
        case 5: return f_gelu(x);
        case 6: return f_at_most(f_at_least(x, (W)numbers[0]), (W)numbers[1]);
        case 7: return f_hard_sigmoid(x, (W)numbers[0], (W)numbers[1]);
        case 8: return f_hard_swish(x);
        default: return x;
    }
}

// What a convolution does behind that, in this order; several are their sum.
struct After {
    enum { SCALE = 1, SHIFT = 2, RESIDUAL = 4 };
};

template <int32 AFTER, typename W>
__device__ __forceinline__ W f_after(W x, W scale, W shift, W residual) {
    if constexpr ((AFTER & After::SCALE) != 0) x *= scale;
    if constexpr ((AFTER & After::SHIFT) != 0) x += shift;
    if constexpr ((AFTER & After::RESIDUAL) != 0) x += residual;
    return x;
}

FUNCTION f_shrink(W x, W lambd, W bias) { return x < -lambd ? x + bias : (x > lambd ? x - bias : (W)0); }
FUNCTION f_modulo(W x, W y) {
    const W rest = fmod(x, y);
    return rest != (W)0 && (rest < (W)0) != (y < (W)0) ? rest + y : rest;
}
template <typename W>
__device__ __forceinline__ bool f_is_infinite(W x, bool below, bool above) {
    const W infinity = (W)__longlong_as_double(0x7ff0000000000000ll);
    return (below && x == -infinity) || (above && x == infinity);
}

// Integers: by 0 there is 0, and what does not fit wraps.
FUNCTION i_divide(W a, W b) {
    if (b == (W)0) return (W)0;
    if ((W)-1 < (W)0 && b == (W)-1) return (W)(0 - (uint64)a);
    return (W)(a / b);
}
// With the sign of the divisor, or of the dividend.
FUNCTION i_modulo(W a, W b, bool of_dividend) {
    if (b == (W)0 || ((W)-1 < (W)0 && b == (W)-1)) return (W)0;
    const W rest = (W)(a % b);
    return !of_dividend && rest != (W)0 && (rest < (W)0) != (b < (W)0) ? (W)(rest + b) : rest;
}
FUNCTION i_shift_left(W a, W b) { return b >= (W)0 && b < (W)64 ? (W)((uint64)a << (uint64)b) : (W)0; }
FUNCTION i_shift_right(W a, W b) {
    const bool within = b >= (W)0 && b < (W)64;
    if ((W)-1 < (W)0) return (W)((int64)a >> (within ? (int64)b : 63));
    return within ? (W)((uint64)a >> (uint64)b) : (W)0;
}
// A negative exponent gives the truncated quotient, and 0 of 0.
__device__ __forceinline__ int64 i_power(int64 base, int64 exponent) {
    if (exponent < 0) return base == 1 || (base == -1 && exponent % 2 == 0) ? 1 : base == -1 ? -1 : 0;
    uint64 result = 1, square = (uint64)base;
    for (uint64 rest = (uint64)exponent; rest; rest >>= 1) {
        if (rest & 1u) result *= square;
        square *= square;
    }
    return (int64)result;
}
// Truncates; NaN becomes 0, and what is beyond 64 bits the nearest end.
template <typename W>
__device__ __forceinline__ int64 f_to_int64(W x) {
    return x != x ? 0 : (int64)x;
}
// Numbers below 0 wrap.
template <typename W>
__device__ __forceinline__ uint64 f_to_uint64(W x) {
    return x >= (W)0 ? (uint64)x : (uint64)f_to_int64(x);
}

// To a float whose last bit says whether anything was lost: rounded once more, it is what one rounding would give.
__device__ __forceinline__ float f_odd(double x) {
    const float cut = __double2float_rz(x);
    return (double)cut == x || x != x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}
__device__ __forceinline__ float f_odd(int64 x) {
    const float cut = __ll2float_rz(x);
    return (int64)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}
__device__ __forceinline__ float f_odd(uint64 x) {
    const float cut = __ull2float_rz(x);
    return (uint64)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}

// Floats of at most 8 bits, each in a byte: what the codes mean is as `network/narrow.rs` has it.
enum Special { INFINITIES, LAST, NEGATIVE_ZERO, NONE };

template <int BITS, int MANTISSA, int BIAS, Special SPECIAL>
struct small_float {
    static constexpr uint32 HALF = 1u << (BITS - 1);
    // The code of the greatest number, that of what lies beyond it, and that of NaN; without a sign.
    static constexpr uint32 GREATEST =
        SPECIAL == INFINITIES ? HALF - 1 - (1u << MANTISSA) : (SPECIAL == LAST ? HALF - 2 : HALF - 1);
    static constexpr uint32 NOT_A_NUMBER =
        SPECIAL == INFINITIES ? GREATEST + 3 : (SPECIAL == LAST ? GREATEST + 1 : (SPECIAL == NEGATIVE_ZERO ? HALF : 0));
    static constexpr uint32 BEYOND =
        SPECIAL == INFINITIES ? GREATEST + 1 : (SPECIAL == NONE ? GREATEST : NOT_A_NUMBER);

    uint8 bits;

    static __device__ __forceinline__ float power(int32 exponent) { return __uint_as_float((uint32)(exponent + 127) << 23); }

    static __device__ __forceinline__ small_float of(float x, bool saturate) {
#if __CUDA_ARCH__ >= 890
        // One instruction, which saturates. Without that, what would round to more than 448 is no number.
        if constexpr (BITS == 8 && MANTISSA == 3 && SPECIAL == LAST) {
            uint16 pair;
            asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
            small_float narrow;
            narrow.bits = (uint8)pair;
            // NaN becomes NaN by itself, without a sign.
            if (saturate) return narrow;
            const bool lost = !(fabsf(x) <= 464.0f);
            narrow.bits = lost ? (uint8)(NOT_A_NUMBER | (__float_as_uint(x) >> 24 & HALF)) : (uint8)pair;
            return narrow;
        }
#endif
        constexpr uint32 SHIFT = 23 - MANTISSA;
        const uint32 size = __float_as_uint(x) & 0x7fffffffu;
        // To nearest even on the bits as they are; the carry goes on into the exponent.
        const uint32 normal = ((size + (1u << (SHIFT - 1)) - 1 + (size >> SHIFT & 1u)) >> SHIFT) - ((127u - BIAS) << MANTISSA);
        // Below the least exponent the units stay the same: beside 2^23 they are the last place.
        const float units = __uint_as_float(size) * power(MANTISSA + BIAS - 1);
        const uint32 few = __float_as_uint(units + 8388608.0f) - 0x4b000000u;
        uint32 code = size < (128u - BIAS) << 23 ? few : normal;
        code = code > GREATEST ? (saturate ? GREATEST : BEYOND) : code;
        code = size > 0x7f800000u ? NOT_A_NUMBER : code;
        const bool bare = SPECIAL == NEGATIVE_ZERO && (code == 0 || code >= HALF);
        small_float narrow;
        narrow.bits = (uint8)(bare || __float_as_uint(x) >> 31 == 0 ? code : code | HALF);
        return narrow;
    }

    __device__ __forceinline__ float number() const {
#if __CUDA_ARCH__ >= 890
        // Every number of it is one of float16.
        if constexpr (BITS == 8 && MANTISSA == 3 && SPECIAL == LAST) {
            uint32 pair;
            float wide;
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((uint16)bits));
            asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"((uint16)pair));
            return wide;
        }
#endif
        const bool below = (bits & HALF) != 0;
        const uint32 code = bits & (HALF - 1);
        const uint32 steps = code >> MANTISSA, units = code & ((1u << MANTISSA) - 1);
        float size = (float)(steps ? units | 1u << MANTISSA : units) * power((int32)(steps ? steps : 1) - BIAS - MANTISSA);
        if (SPECIAL == INFINITIES && code == BEYOND) size = __uint_as_float(0x7f800000u);
        if (SPECIAL == NEGATIVE_ZERO ? below && code == 0 : code > GREATEST && !(SPECIAL == INFINITIES && code == BEYOND)) {
            return __uint_as_float(0x7fc00000u);
        }
        return below ? -size : size;
    }
};
typedef small_float<8, 3, 7, LAST> float8e4m3fn;
typedef small_float<8, 3, 8, NEGATIVE_ZERO> float8e4m3fnuz;
typedef small_float<8, 2, 15, INFINITIES> float8e5m2;
typedef small_float<8, 2, 16, NEGATIVE_ZERO> float8e5m2fnuz;
typedef small_float<4, 1, 1, NONE> float4e2m1;

// How results become codes of 8 bits: what they are multiplied by, the zero point, and the least and the greatest code.
struct QuantizeParams {
    float inverse;
    int32 zero, low, high;
};

// The code of a result. Q is void where none is written.
template <typename Q>
struct Quantizer {
    static constexpr bool THERE = true;
    static __device__ __forceinline__ Q of(float x, const QuantizeParams& c) {
        return (Q)f_code(f_product(x, c.inverse), c.zero, c.low, c.high);
    }
};
template <>
struct Quantizer<float8e4m3fn> {
    static constexpr bool THERE = true;
    static __device__ __forceinline__ float8e4m3fn of(float x, const QuantizeParams& c) {
        return float8e4m3fn::of(f_product(x, c.inverse), true);
    }
};
template <>
struct Quantizer<void> {
    static constexpr bool THERE = false;
};

// A power of two from 2^-127 to 2^127, without a sign and without 0; the last code is NaN.
struct float8e8m0 {
    uint8 bits;

    // `way` of a number between two powers: 0 up, 1 down, 2 to the nearer one.
    static __device__ __forceinline__ float8e8m0 of(double x, bool saturate, int32 way) {
        const uint64 all = (uint64)__double_as_longlong(x);
        const uint64 rest = all & 0xfffffffffffffull;
        const bool up = way == 0 ? rest != 0 : (way == 2 && rest >= 1ull << 51);
        int32 code = (int32)(all >> 52 & 0x7ff) - 1023 + up + 127;
        if (code < 0 || code > 254) code = saturate ? (code < 0 ? 0 : 254) : 255;
        float8e8m0 narrow;
        narrow.bits = (uint8)(x != x || x < 0.0 ? 255 : code);
        return narrow;
    }

    __device__ __forceinline__ float number() const {
        return bits == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float(bits ? (uint32)bits << 23 : 0x400000u);
    }
};

// Integers of less than 8 bits, each in a byte.
template <int BITS, bool SIGNED>
struct small_int {
    uint8 bits;

    static __device__ __forceinline__ int32 cut(int64 x) {
        return SIGNED ? (int32)((uint32)x << (32 - BITS)) >> (32 - BITS) : (int32)((uint32)x & ((1u << BITS) - 1));
    }
};
typedef small_int<4, true> signed4;
typedef small_int<4, false> unsigned4;
typedef small_int<2, true> signed2;
typedef small_int<2, false> unsigned2;

template <int B, int M, int E, Special S>
struct Wide<small_float<B, M, E, S>> {
    typedef float type;
};
template <>
struct Wide<float8e8m0> {
    typedef float type;
};
template <int B, bool S>
struct Wide<small_int<B, S>> {
    typedef int32 type;
};
template <int B, int M, int E, Special S>
__device__ __forceinline__ float widen(small_float<B, M, E, S> x) {
    return x.number();
}
__device__ __forceinline__ float widen(float8e8m0 x) { return x.number(); }
template <int B, bool S>
__device__ __forceinline__ int32 widen(small_int<B, S> x) {
    return small_int<B, S>::cut(x.bits);
}
template <int B, int M, int E, Special S>
struct Narrow<small_float<B, M, E, S>> {
    template <typename W>
    static __device__ __forceinline__ small_float<B, M, E, S> from(W x) {
        return small_float<B, M, E, S>::of((float)x, false);
    }
    static __device__ __forceinline__ small_float<B, M, E, S> from(small_float<B, M, E, S> code) { return code; }
};
template <>
struct Narrow<float8e8m0> {
    template <typename W>
    static __device__ __forceinline__ float8e8m0 from(W x) {
        return float8e8m0::of((double)x, false, 2);
    }
};
template <int B, bool S>
struct Narrow<small_int<B, S>> {
    template <typename W>
    static __device__ __forceinline__ small_int<B, S> from(W x) {
        small_int<B, S> narrow;
        narrow.bits = (uint8)((uint32)x & ((1u << B) - 1));
        return narrow;
    }
};
