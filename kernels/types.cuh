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

FUNCTION f_relu(W x) { return x < (W)0 ? (W)0 : x; }
FUNCTION f_leaky_relu(W x, W a) { return x < (W)0 ? a * x : x; }
FUNCTION f_thresholded_relu(W x, W a) { return x > a ? x : (W)0; }
FUNCTION f_sigmoid(W x) { return (W)1 / ((W)1 + exp(-x)); }
FUNCTION f_silu(W x) { return x / ((W)1 + exp(-x)); }
FUNCTION f_elu(W x, W a) { return x < (W)0 ? a * expm1(x) : x; }
FUNCTION f_selu(W x, W a, W g) { return g * f_elu(x, a); }
FUNCTION f_celu(W x, W a) { return x < (W)0 ? a * expm1(x / a) : x; }
FUNCTION f_gelu(W x) { return (W)0.5 * x * ((W)1 + erf(x * (W)0.70710678118654752440)); }
FUNCTION f_gelu_tanh(W x) {
    return (W)0.5 * x * ((W)1 + tanh((W)0.79788456080286535588 * (x + (W)0.044715 * x * x * x)));
}
FUNCTION f_softplus(W x) { return fmax(x, (W)0) + log1p(exp(-fabs(x))); }
FUNCTION f_mish(W x) { return x * tanh(f_softplus(x)); }
FUNCTION f_softsign(W x) { return x / ((W)1 + fabs(x)); }
FUNCTION f_sign(W x) { return x > (W)0 ? (W)1 : (x < (W)0 ? (W)-1 : x); }
FUNCTION f_reciprocal(W x) { return (W)1 / x; }
FUNCTION f_rsqrt(W x) { return (W)1 / sqrt(x); }
FUNCTION f_square(W x) { return x * x; }
// A NaN stays one, as numpy's maximum has it.
FUNCTION f_max(W a, W b) { return a > b || a != a ? a : b; }
FUNCTION f_min(W a, W b) { return a < b || a != a ? a : b; }
FUNCTION f_clip(W x, W low, W high) { return f_min(f_max(x, low), high); }
FUNCTION f_hard_sigmoid(W x, W a, W b) { return f_clip(a * x + b, (W)0, (W)1); }
FUNCTION f_hard_swish(W x) { return x * f_hard_sigmoid(x, (W)(1.0 / 6.0), (W)0.5); }

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
