// What the blocks of a cluster do together.

// Says that this block of a cluster runs, and waits until all of them do: until then nobody writes to their memory.
__device__ __forceinline__ void cluster_greet() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_meet() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// Blocks of a cluster wait for one another, and see what the others wrote.
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32 bits_of(float sum) { return __float_as_uint(sum); }
__device__ __forceinline__ uint32 bits_of(int32 sum) { return (uint32)sum; }
// Sums to the shared memory of a block of the cluster.
template <typename Sum>
__device__ __forceinline__ void send(Sum sum, uint32 address, uint32 block) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.b32 [there], %2;\n}" ::"r"(address),
                 "r"(block), "r"(bits_of(sum))
                 : "memory");
}
