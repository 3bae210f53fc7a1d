// The steps of LSTM, GRU and RNN. `T` is the element type, `W` what is computed in; `activation<N>(direction, x)`, the Nth
// function of a direction, is generated.

struct Extents {
    int32 steps, batch, hidden, directions;
    // Whether the batch is the first axis, and whether each direction runs from the end.
    int32 batch_first, reverse[2];
};

// What a layer reads and gives; null where it is left out. Behind the outputs and inputs lie, in the workspace: the product
// with the input, the states before and after a step in turn, cells, update gates and reset states.
struct Layer {
    T *y, *y_h, *y_c;
    const T *r, *b;
    const int32* lengths;
    const T *h0, *c0, *p;
    W *input, *h, *c, *update, *reset;
};

__device__ __forceinline__ int32 state_row(const Extents& e, int32 direction, int32 n) {
    return e.batch_first ? n * e.directions + direction : direction * e.batch + n;
}
__device__ __forceinline__ int32 y_row(const Extents& e, int32 direction, int32 n, int32 step) {
    return e.batch_first ? (n * e.steps + step) * e.directions + direction : (step * e.directions + direction) * e.batch + n;
}
__device__ __forceinline__ int32 x_row(const Extents& e, int32 n, int32 step) {
    return e.batch_first ? n * e.steps + step : step * e.batch + n;
}
// Of all directions, in the workspace: the state before or after a step.
__device__ __forceinline__ W* state_at(const Layer& l, const Extents& e, int32 count) {
    return l.h + (uint64)(count & 1) * e.directions * e.batch * e.hidden;
}

// The states before the first step. Lengths out of range are complained about, and taken for the nearest that is not.
__device__ __forceinline__ void begin(const Layer& l, const Extents& e, int64* flag) {
    const uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (l.lengths && at < e.batch && (uint32)l.lengths[at] > (uint32)e.steps) complain(flag, l.lengths[at]);
    if (at >= e.directions * e.batch * e.hidden) return;
    const int32 j = at % e.hidden, n = at / e.hidden % e.batch, direction = at / e.hidden / e.batch;
    const uint64 from = (uint64)state_row(e, direction, n) * e.hidden + j;
    state_at(l, e, 0)[at] = l.h0 ? widen(l.h0[from]) : (W)0;
    if (l.c) l.c[at] = l.c0 ? widen(l.c0[from]) : (W)0;
}

// The states after the last step.
__device__ __forceinline__ void end(const Layer& l, const Extents& e) {
    const uint32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= e.directions * e.batch * e.hidden) return;
    const int32 j = at % e.hidden, n = at / e.hidden % e.batch, direction = at / e.hidden / e.batch;
    const uint64 to = (uint64)state_row(e, direction, n) * e.hidden + j;
    l.y_h[to] = Narrow<T>::from(state_at(l, e, e.steps)[at]);
    if (l.y_c) l.y_c[to] = Narrow<T>::from(l.c[at]);
}

// Rows `gate * hidden + j` of the recurrent weights, from the first gate on, times the states of ROWS sequences.
template <int GATES, int ROWS>
__device__ __forceinline__ void products(W (&sums)[GATES][ROWS], const T* r, const W* h, const Extents& e, int32 j, int32 rows) {
    #pragma unroll
    for (int32 gate = 0; gate < GATES; gate++) {
        #pragma unroll
        for (int32 n = 0; n < ROWS; n++) sums[gate][n] = (W)0;
    }
    for (int32 k = threadIdx.x % 32; k < e.hidden; k += 32) {
        W weights[GATES];
        #pragma unroll
        for (int32 gate = 0; gate < GATES; gate++) weights[gate] = widen(r[((uint64)gate * e.hidden + j) * e.hidden + k]);
        #pragma unroll
        for (int32 n = 0; n < ROWS; n++) {
            const W state = n < rows ? h[(uint64)n * e.hidden + k] : (W)0;
            #pragma unroll
            for (int32 gate = 0; gate < GATES; gate++) sums[gate][n] += weights[gate] * state;
        }
    }
    #pragma unroll
    for (int32 gate = 0; gate < GATES; gate++) {
        #pragma unroll
        for (int32 n = 0; n < ROWS; n++) {
            #pragma unroll
            for (int32 other = 16; other > 0; other /= 2) sums[gate][n] += __shfl_xor_sync(0xffffffffu, sums[gate][n], other);
        }
    }
}

// One number of a sequence at a step.
struct Cell {
    const Layer& l;
    const Extents& e;
    int32 direction, j, n, gates;
    // Where it stands among the states, and its row of the product with the input.
    uint64 at, row;

    __device__ __forceinline__ Cell(const Layer& l, const Extents& e, int32 direction, int32 j, int32 n, int32 gates, int32 step)
        : l(l), e(e), direction(direction), j(j), n(n), gates(gates) {
        at = ((uint64)direction * e.batch + n) * e.hidden + j;
        row = ((uint64)x_row(e, n, step) * e.directions + direction) * gates * e.hidden;
    }
    // Biases of a gate: `side` 0 with the input, 1 with the state.
    __device__ __forceinline__ W bias(int32 gate, int32 side) const {
        return l.b ? widen(l.b[((uint64)direction * 2 + side) * gates * e.hidden + gate * e.hidden + j]) : (W)0;
    }
    __device__ __forceinline__ W input(int32 gate) const { return l.input[row + gate * e.hidden + j] + bias(gate, 0); }
    __device__ __forceinline__ W sum(int32 gate, W product) const { return input(gate) + (product + bias(gate, 1)); }
    __device__ __forceinline__ W peephole(int32 gate) const {
        return l.p ? widen(l.p[((uint64)direction * 3 + gate) * e.hidden + j]) : (W)0;
    }
    __device__ __forceinline__ W fresh_state(W update, W fresh, W before) const {
        return ((W)1 - update) * fresh + update * before;
    }
};

__device__ __forceinline__ W rnn(const Cell& c, const W (&products)[1], W) {
    return activation<0>(c.direction, c.sum(0, products[0]));
}
__device__ __forceinline__ W linear_gru(const Cell& c, const W (&products)[3], W before) {
    const W update = activation<0>(c.direction, c.sum(0, products[0]));
    const W reset = activation<0>(c.direction, c.sum(1, products[1]));
    const W fresh = activation<1>(c.direction, c.input(2) + reset * (products[2] + c.bias(2, 1)));
    return c.fresh_state(update, fresh, before);
}
template <bool INPUT_FORGET>
__device__ __forceinline__ W lstm(const Cell& c, const W (&products)[4], W) {
    W& cell = c.l.c[c.at];
    const W take = activation<0>(c.direction, c.sum(0, products[0]) + c.peephole(0) * cell);
    const W keep =
        INPUT_FORGET ? (W)1 - take : activation<0>(c.direction, c.sum(2, products[2]) + c.peephole(2) * cell);
    const W next = keep * cell + take * activation<1>(c.direction, c.sum(3, products[3]));
    cell = next;
    const W give = activation<0>(c.direction, c.sum(1, products[1]) + c.peephole(1) * next);
    return give * activation<2>(c.direction, next);
}

__device__ __forceinline__ int32 length_of(const Layer& l, const Extents& e, int32 n) {
    return l.lengths ? min(max(l.lengths[n], 0), e.steps) : e.steps;
}

// What a warp computes: the `j`th number of the state, for ROWS sequences from the `first` on; GATES of the products with
// the states `h`, those after `skipped` ones of all `gates`.
template <int GATES, int ROWS>
struct Warp {
    int32 direction, j, first, rows;
    // Where the numbers stand among the states of all directions, the first one of them.
    uint64 states;
    W sums[GATES][ROWS];

    __device__ __forceinline__ Warp(const Layer& l, const Extents& e, const W* h, int32 gates, int32 skipped) {
        j = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
        direction = blockIdx.y;
        first = blockIdx.z * ROWS;
        rows = j < e.hidden ? min(e.batch - first, ROWS) : 0;
        states = ((uint64)direction * e.batch + first) * e.hidden;
        if (rows == 0) return;
        const T* r = l.r + ((uint64)direction * gates + skipped) * e.hidden * e.hidden;
        products<GATES, ROWS>(sums, r, h + states, e, j, rows);
    }
};

// A step. `kind` gives the new number of a state from its products and the old one.
template <int GATES, int ROWS, typename Kind>
__device__ __forceinline__ void step(const Layer& l, const Extents& e, int32 count, const W* h, int32 gates, int32 skipped,
                                     Kind kind) {
    const Warp<GATES, ROWS> warp(l, e, h, gates, skipped);
    #pragma unroll
    for (int32 n = 0; n < ROWS; n++) {
        if (threadIdx.x % 32 != n || n >= warp.rows) continue;
        const int32 length = length_of(l, e, warp.first + n);
        const uint64 at = warp.states + (uint64)n * e.hidden + warp.j;
        W state = state_at(l, e, count)[at];
        const bool over = count >= length;
        const int32 at_step = over || !e.reverse[warp.direction] ? count : length - 1 - count;
        if (!over) {
            W own[GATES];
            #pragma unroll
            for (int32 gate = 0; gate < GATES; gate++) own[gate] = warp.sums[gate][n];
            state = kind(Cell(l, e, warp.direction, warp.j, warp.first + n, gates, at_step), own, state);
        }
        state_at(l, e, count + 1)[at] = state;
        const uint64 to = (uint64)y_row(e, warp.direction, warp.first + n, at_step) * e.hidden + warp.j;
        l.y[to] = Narrow<T>::from(over ? (W)0 : state);
    }
}

// The first half of a step of a GRU whose state is reset before it is multiplied: both gates, and the reset state.
template <int ROWS>
__device__ __forceinline__ void reset(const Layer& l, const Extents& e, int32 count) {
    const Warp<2, ROWS> warp(l, e, state_at(l, e, count), 3, 0);
    #pragma unroll
    for (int32 n = 0; n < ROWS; n++) {
        if (threadIdx.x % 32 != n || n >= warp.rows) continue;
        const int32 length = length_of(l, e, warp.first + n);
        const uint64 at = warp.states + (uint64)n * e.hidden + warp.j;
        // What is over is not read, but multiplied.
        l.reset[at] = (W)0;
        if (count >= length) continue;
        const Cell c(l, e, warp.direction, warp.j, warp.first + n, 3, e.reverse[warp.direction] ? length - 1 - count : count);
        l.update[at] = activation<0>(warp.direction, c.sum(0, warp.sums[0][n]));
        l.reset[at] = activation<0>(warp.direction, c.sum(1, warp.sums[1][n])) * state_at(l, e, count)[at];
    }
}
// The second half.
__device__ __forceinline__ W gru(const Cell& c, const W (&products)[1], W before) {
    return c.fresh_state(c.l.update[c.at], activation<1>(c.direction, c.sum(2, products[0])), before);
}
