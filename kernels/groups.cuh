// What warpgroups of Hopper multiply with: instructions whose operands lie in shared memory and whose products go on beside
// other work (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

// How a tile lies in shared memory, for the instruction: `leading` bytes from one strip of columns to the next; patterns of eight
// rows of 128 bytes, of 64, or of 32.
__device__ __forceinline__ uint64 described(uint32 address, uint32 leading, uint32 pattern) {
    const uint64 swizzle = pattern == 8 * 32 ? 3 : pattern == 8 * 64 ? 2 : 1;
    return (uint64)(address >> 4 & 0x3fff) | (uint64)(leading >> 4) << 16 | (uint64)(pattern >> 4) << 32 | swizzle << 62;
}

#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32                                                                                                       \
    NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_48                                                                                                       \
    NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64                                                                                                       \
    NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "  \
             "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_96                                                                                                       \
    NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "  \
             "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_128                                                                                                      \
    NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "    \
             "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// The registers of sums, as operands of an instruction: FLOAT_SUM or INTEGER_SUM.
#define FLOAT_SUM(x) "+f"(x)
#define INTEGER_SUM(x) "+r"(x)
#define SUMS_8(KIND, i)                                                                                                \
    KIND(d[i]), KIND(d[i + 1]), KIND(d[i + 2]), KIND(d[i + 3]), KIND(d[i + 4]), KIND(d[i + 5]), KIND(d[i + 6]),        \
        KIND(d[i + 7])
#define SUMS_16(KIND, i) SUMS_8(KIND, i), SUMS_8(KIND, i + 8)
#define SUMS_32(KIND, i) SUMS_16(KIND, i), SUMS_16(KIND, i + 16)
#define SUMS_48(KIND, i) SUMS_32(KIND, i), SUMS_16(KIND, i + 32)
#define SUMS_64(KIND, i) SUMS_32(KIND, i), SUMS_32(KIND, i + 32)
#define SUMS_96(KIND, i) SUMS_64(KIND, i), SUMS_32(KIND, i + 64)
#define SUMS_128(KIND, i) SUMS_64(KIND, i), SUMS_64(KIND, i + 64)

// 64 x 16 by 16 x COLUMNS, added to the sums if `add`; both out of shared memory. TURNED is for right operands with a row for
// each column of the result. `a`, `b`, `p` and `t` name the last operands.
#define MULTIPLY(TYPE, PTX, COLUMNS, COUNT, a, b, p, t)                                                                \
    template <bool TURNED>                                                                                             \
    __device__ __forceinline__ void multiply_add(TYPE, float(&d)[COUNT], uint64 left, uint64 right, int32 add) {       \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " p ", 0;\n"                                                \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." PTX "." PTX " {" NAMES_##COUNT "}, " a    \
                     ", " b ", add, 1, 1, 0, " t ";\n}"                                                                \
                     : SUMS_##COUNT(FLOAT_SUM, 0)                                                                      \
                     : "l"(left), "l"(right), "r"(add), "n"(TURNED ? 0 : 1));                                          \
    }
#define MULTIPLIES(TYPE, PTX)                                                                                          \
    MULTIPLY(TYPE, PTX, 64, 32, "%32", "%33", "%34", "%35")                                                            \
    MULTIPLY(TYPE, PTX, 128, 64, "%64", "%65", "%66", "%67")                                                           \
    MULTIPLY(TYPE, PTX, 192, 96, "%96", "%97", "%98", "%99")                                                           \
    MULTIPLY(TYPE, PTX, 256, 128, "%128", "%129", "%130", "%131")
MULTIPLIES(float16, "f16")
MULTIPLIES(bfloat16, "bf16")

// The same with a left operand in registers, which lie as `mma.m16n8k16` has them: 16 rows for each warp. `p`, `q`, `r` and `u`
// name these, `b` and `t` the last operands.
#define MULTIPLY_HELD(TYPE, PTX, COLUMNS, COUNT, p, q, r, u, b, t)                                                     \
    template <bool TURNED>                                                                                             \
    __device__ __forceinline__ void multiply_add(TYPE, float(&d)[COUNT], const uint32(&a)[4], uint64 right) {          \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." PTX "." PTX " {" NAMES_##COUNT "}, {" p   \
                     ", " q ", " r ", " u "}, " b ", 1, 1, 1, " t ";"                                                  \
                     : SUMS_##COUNT(FLOAT_SUM, 0)                                                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "n"(TURNED ? 0 : 1));                   \
    }
#define MULTIPLIES_HELD(TYPE, PTX)                                                                                     \
    MULTIPLY_HELD(TYPE, PTX, 64, 32, "%32", "%33", "%34", "%35", "%36", "%37")                                         \
    MULTIPLY_HELD(TYPE, PTX, 96, 48, "%48", "%49", "%50", "%51", "%52", "%53")                                         \
    MULTIPLY_HELD(TYPE, PTX, 128, 64, "%64", "%65", "%66", "%67", "%68", "%69")                                        \
    MULTIPLY_HELD(TYPE, PTX, 192, 96, "%96", "%97", "%98", "%99", "%100", "%101")                                      \
    MULTIPLY_HELD(TYPE, PTX, 256, 128, "%128", "%129", "%130", "%131", "%132", "%133")
MULTIPLIES_HELD(float16, "f16")
MULTIPLIES_HELD(bfloat16, "bf16")

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int GROUPS>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}
