// Runs of elements that indices name, read from where they lie.

template <int AXES, int NUMBERS>
struct Places {
    // Packs of all runs, and of one.
    uint32 items;
    Divisor packs;
    Runs<AXES, NUMBERS> runs;
};

template <typename T, int N, typename I, int AXES, int NUMBERS>
__device__ __forceinline__ void gather(T* y, const T* x, const I* indices, const Places<AXES, NUMBERS>& s, int64* flag) {
    const uint32 item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= s.items) return;
    uint32 run = item;
    uint64 from = s.packs.take(run) * N;
    if (s.runs.find(run, indices, from, flag)) store<N>(y + (uint64)item * N, fetch<N>(x + from));
}
