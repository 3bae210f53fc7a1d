// The patches of an image that a convolution sees, each as a row, where no place is seen twice.

struct Shape {
    // Packs of all rows, and of what lies together in a patch.
    int32 items, packs;
    // How many such runs a patch has: along the channels (1 where they are innermost) and along the outer spatial axes.
    int32 runs[3];
    int32 out[3], step[3];
    int32 x_stride[5];
};

template <typename T, int V>
__device__ void patches(T* rows, const T* x, const Shape& s) {
    const uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= s.items) return;
    uint32 rest = at / s.packs;
    int32 run[3], place[3];
    for (int32 i = 2; i >= 0; i--) {
        run[i] = rest % s.runs[i];
        rest /= s.runs[i];
    }
    for (int32 i = 2; i >= 0; i--) {
        place[i] = rest % s.out[i];
        rest /= s.out[i];
    }
    x += (uint64)rest * s.x_stride[0] + (uint64)run[0] * s.x_stride[1];
    x += (uint64)(place[0] * s.step[0] + run[1]) * s.x_stride[2] + (uint64)(place[1] * s.step[1] + run[2]) * s.x_stride[3];
    x += (uint64)(place[2] * s.step[2]) * s.x_stride[4] + at % s.packs * V;
    *(Pack<T, V>*)(rows + (uint64)at * V) = *(const Pack<T, V>*)x;
}
