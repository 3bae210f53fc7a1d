// What tensor cores are given and give: fragments of 16-bit matrices, and copies into shared memory that run beside.

// Four matrices of 8 x 8 elements: each lane says where a row of 16 bytes begins, eight lanes for each matrix, and gets
// two neighbours of row lane / 4 of each.
__device__ __forceinline__ void load_matrices(uint32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same with each matrix turned: a lane gets two neighbours of column lane / 4.
__device__ __forceinline__ void load_turned(uint32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Two numbers as one register of elements, the first one low.
template <typename T>
struct Two;
template <>
struct Two<float16> {
    static __device__ __forceinline__ uint32 from(float low, float high) {
#if __CUDA_ARCH__ >= 800
        uint32 both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
#else
        return Narrow<float16>::from(low).bits | (uint32)Narrow<float16>::from(high).bits << 16;
#endif
    }
};
template <>
struct Two<bfloat16> {
    static __device__ __forceinline__ uint32 from(float low, float high) {
#if __CUDA_ARCH__ >= 800
        uint32 both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
#else
        return Narrow<bfloat16>::from(low).bits | (uint32)Narrow<bfloat16>::from(high).bits << 16;
#endif
    }
};

// c += a b of 16 x 16 and 16 x 8 elements. A lane holds of c columns 2 (lane % 4) and the next of rows lane / 4 and
// lane / 4 + 8; of a the same rows of two halves of columns; of b those rows of column lane / 4.
template <typename T>
struct Product16;
template <>
struct Product16<float16> {
    static __device__ __forceinline__ void add(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1) {
#if __CUDA_ARCH__ >= 800
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b0));
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
    }
};
#if __CUDA_ARCH__ >= 800
template <>
struct Product16<bfloat16> {
    static __device__ __forceinline__ void add(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
#endif

// 16 bytes into shared memory, on their way until `arrived`; zeros if nothing is there. Both addresses are aligned.
__device__ __forceinline__ void fetch(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
    const int32 bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
#else
    Pack<uint32, 4> words = {{0, 0, 0, 0}};
    if (there) words = *(const Pack<uint32, 4>*)from;
    *(Pack<uint32, 4>*)to = words;
#endif
}

// Ends a group of fetches.
__device__ __forceinline__ void fetched() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all groups of this thread but the last ones are there.
template <int LAST>
__device__ __forceinline__ void arrived() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LAST) : "memory");
#endif
}

// 2^x.
__device__ __forceinline__ float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
