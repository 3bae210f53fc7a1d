// Codes of 4 and 8 bits as operands of tensor cores, and numbers that are multiplied with them.

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
