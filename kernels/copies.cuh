// What brings tiles to shared memory on Hopper: the copy engine (PTX ISA, "cp.async.bulk.tensor"), and the barriers that say when
// they are there, and when nobody reads them any more.

// What cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col write.
struct alignas(64) TensorMap {
    uint64 words[16];
};

__device__ __forceinline__ void barrier_init(uint32 barrier, uint32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32 barrier, uint32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32 barrier, uint32 parity) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(barrier), "r"(parity)
                 : "memory");
}

// Brings a box of a tensor to shared memory.
__device__ __forceinline__ void bring(uint32 to, const TensorMap* map, int32 x, int32 y, int32 z, uint32 barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
                 "[%5];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void bring(uint32 to, const TensorMap* map, int32 x, int32 y, int32 z, int32 w, uint32 barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
                 "[%6];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void bring(uint32 to, const TensorMap* map, int32 x, int32 y, int32 z, int32 w, int32 v,
                                      uint32 barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, "
                 "%6}], [%7];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier)
                 : "memory");
}
// Brings channels of pixels of images that follow each other from one on, each moved by so many columns and rows: what a column of
// an im2col matrix has.
__device__ __forceinline__ void bring_pixels(uint32 to, const TensorMap* map, int32 channel, int32 x, int32 y, int32 image,
                                             uint16 right, uint16 down, uint32 barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
                 "%5}], [%6], {%7, %8};" ::"r"(to), "l"(map), "r"(channel), "r"(x), "r"(y), "r"(image), "r"(barrier), "h"(right),
                 "h"(down)
                 : "memory");
}
__device__ __forceinline__ void expect_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Stages are filled and emptied in turn; a stage's barriers change parity with each round.
template <int STAGES>
struct Turn {
    uint32 stage = 0, parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void skip(uint32 count) {
        stage += count;
        parity ^= stage / STAGES & 1;
        stage %= STAGES;
    }
};
