// Where runs of a row-major tensor start that indices name.

// Leaves an index that is out of range: as it is, or, of several numbers, with which of them it is as the last digit.
__device__ __forceinline__ void refuse(int64* flag, int64 index, int32 which, int32 numbers) {
    // The lowest number of all says that nothing is wrong.
    const int64 most = numbers == 1 ? 0x7fffffffffffffffll : 1ll << 58;
    index = index > most ? most : (index < -most ? -most : index);
    complain(flag, index * numbers + which);
}

template <int AXES, int NUMBERS>
struct Runs {
    // In the order of their indices: along each axis, how far on runs start if their indices were 0, and how far on their
    // indices lie.
    Divisor size[AXES];
    int32 start[AXES], index[AXES];
    // The numbers of one index: extent and stride of the axis that each counts along.
    int32 extent[NUMBERS], stride[NUMBERS];

    // Adds the start of a numbered run to `at`; whether its index is in range.
    template <typename I>
    __device__ __forceinline__ bool find(uint32 run, const I* indices, uint64& at, int64* flag) const {
#pragma unroll
        for (int32 axis = AXES - 1; axis >= 0; axis--) {
            const uint32 place = axis == 0 ? run : size[axis].take(run);
            at += (uint64)place * start[axis];
            indices += (uint64)place * index[axis];
        }
#pragma unroll
        for (int32 k = 0; k < NUMBERS; k++) {
            const int64 number = (int64)indices[k], most = extent[k];
            if (number < -most || number >= most) {
                refuse(flag, number, k, NUMBERS);
                return false;
            }
            at += (uint64)(number < 0 ? number + most : number) * stride[k];
        }
        return true;
    }
};
