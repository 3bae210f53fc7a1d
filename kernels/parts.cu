// Boxes of bytes copied, many in one launch: the parts of a Concat or a Split.

#define PARTS 16
#define THREADS 256
// Packs that a thread has on their way at once.
#define EACH 4

struct Part {
    uint64 to, from;
    // The first block of the part, and its packs.
    uint32 first, packs;
    // Packs of a run, and runs of what lies around them.
    Divisor run, runs;
    // In packs.
    uint32 to_outer, to_inner, from_outer, from_inner;
    // Bytes of a pack.
    uint32 bytes;
    uint32 unused;
};

struct Parts {
    uint32 count;
    uint32 unused;
    Part part[PARTS];
};

template <typename P>
__device__ __forceinline__ void copy_part(const Part& part, uint32 block) {
    P held[EACH];
    uint64 to[EACH];
    const uint32 first = block * (THREADS * EACH) + threadIdx.x;
#pragma unroll
    for (int32 k = 0; k < EACH; k++) {
        uint32 rest = first + k * THREADS;
        if (rest >= part.packs) break;
        const uint32 within = part.run.take(rest), inner = part.runs.take(rest);
        to[k] = (uint64)rest * part.to_outer + (uint64)inner * part.to_inner + within;
        held[k] = ((const P*)part.from)[(uint64)rest * part.from_outer + (uint64)inner * part.from_inner + within];
    }
#pragma unroll
    for (int32 k = 0; k < EACH; k++) {
        if (first + k * THREADS >= part.packs) break;
        ((P*)part.to)[to[k]] = held[k];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) parts(const __grid_constant__ Parts parts) {
    uint32 which = 0;
    while (which + 1 < parts.count && blockIdx.x >= parts.part[which + 1].first) which++;
    const Part& part = parts.part[which];
    const uint32 block = blockIdx.x - part.first;
    switch (part.bytes) {
        case 16: return copy_part<Pack<uint64, 2>>(part, block);
        case 8: return copy_part<uint64>(part, block);
        case 4: return copy_part<uint32>(part, block);
        case 2: return copy_part<uint16>(part, block);
        default: return copy_part<uint8>(part, block);
    }
}
