// Elements brought to an order in which another axis is innermost: tiles are read along the one and written along the other.

#define TILE_THREADS 256
// Axes around those two.
#define AROUND 4

struct Tiles {
    // Extents of the axis that is innermost in the target, and of the one that is innermost in the source.
    uint32 rows, columns;
    Divisor row_tiles, column_tiles;
    // From one row to the next in the source, and from one column to the next in the target.
    uint32 from_row, to_column;
    Divisor size[AROUND];
    uint32 to[AROUND], from[AROUND];
};

// Tiles of ROWS x COLUMNS, read IN elements at once and written OUT at once.
template <typename T, int ROWS, int COLUMNS, int IN, int OUT>
__device__ __forceinline__ void transpose(T* __restrict__ y, const T* __restrict__ x, const Tiles& s) {
    // Rows begin one bank further each, so that neither rows nor columns meet in one.
    constexpr int32 PITCH = COLUMNS + (sizeof(T) < 4 ? 4 / sizeof(T) : 1);
    constexpr int32 READS = ROWS * COLUMNS / IN / TILE_THREADS, WRITES = ROWS * COLUMNS / OUT / TILE_THREADS;
    __shared__ T tile[ROWS * PITCH];
    uint32 rest = blockIdx.x;
    const uint32 column0 = s.column_tiles.take(rest) * COLUMNS, row0 = s.row_tiles.take(rest) * ROWS;
    uint64 to = (uint64)column0 * s.to_column + row0, from = (uint64)row0 * s.from_row + column0;
#pragma unroll
    for (int32 axis = AROUND - 1; axis >= 0; axis--) {
        const uint32 place = axis == 0 ? rest : s.size[axis].take(rest);
        to += (uint64)place * s.to[axis];
        from += (uint64)place * s.from[axis];
    }
    const int32 rows = min(s.rows - row0, (uint32)ROWS), columns = min(s.columns - column0, (uint32)COLUMNS);
    Pack<T, IN> held[READS];
#pragma unroll
    for (int32 k = 0; k < READS; k++) {
        const int32 at = k * TILE_THREADS + threadIdx.x, row = at / (COLUMNS / IN), column = at % (COLUMNS / IN) * IN;
        if (row < rows && column < columns) held[k] = fetch<IN>(x + from + (uint64)row * s.from_row + column);
    }
#pragma unroll
    for (int32 k = 0; k < READS; k++) {
        const int32 at = k * TILE_THREADS + threadIdx.x, row = at / (COLUMNS / IN), column = at % (COLUMNS / IN) * IN;
#pragma unroll
        for (int32 n = 0; n < IN; n++) tile[row * PITCH + column + n] = held[k].item[n];
    }
    __syncthreads();
#pragma unroll
    for (int32 k = 0; k < WRITES; k++) {
        const int32 at = k * TILE_THREADS + threadIdx.x, column = at / (ROWS / OUT), row = at % (ROWS / OUT) * OUT;
        Pack<T, OUT> pack;
#pragma unroll
        for (int32 n = 0; n < OUT; n++) pack.item[n] = tile[(row + n) * PITCH + column];
        if (row < rows && column < columns) store<OUT>(y + to + (uint64)column * s.to_column + row, pack);
    }
}
