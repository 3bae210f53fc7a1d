// LinearAttention: a warp for COLUMNS columns of a state, which it keeps in registers from token to token. Each lane has
// ROWS rows, 32 apart.

struct Linear {
    // What results are multiplied by.
    double scale;
    // States, of size x v_size each, heads of a batch, heads of queries for each, and tokens.
    int32 states, shared, group, tokens, size, v_size;
    // Numbers of a token that say how a state decays: one, or one for each number of a key; weights of a token.
    int32 decays, betas;
};

template <typename W>
__device__ __forceinline__ W sum_of_warp(W x) {
    #pragma unroll
    for (int32 other = 16; other > 0; other >>= 1) x += __shfl_xor_sync(0xffffffffu, x, other);
    return x;
}

// What a lane reads of a token.
template <typename W, int ROWS, int COLUMNS>
struct Token {
    W key[ROWS], query[ROWS], decay[ROWS], value[COLUMNS], beta;
};

// Where the numbers of one head lie.
template <typename T>
struct Head {
    const T *q, *k, *v, *decay, *beta;
    int32 head, column;
};

template <bool GATED, bool DELTA, typename W, int ROWS, int COLUMNS, typename T>
__device__ __forceinline__ void read(Token<W, ROWS, COLUMNS>& to, const Head<T>& from, int64 token, const Linear& s) {
    const int64 place = token * s.shared + from.head;
    const T* const q = from.q + place * s.group * s.size;
    #pragma unroll
    for (int32 i = 0; i < ROWS; i++) {
        const int32 d = threadIdx.x % 32 + i * 32;
        const bool there = d < s.size;
        to.key[i] = there ? (W)widen(from.k[place * s.size + d]) : (W)0;
        to.query[i] = there ? (W)widen(q[d]) : (W)0;
        if (GATED) to.decay[i] = there ? exp((W)widen(from.decay[place * s.decays + (s.decays == 1 ? 0 : d)])) : (W)0;
    }
    #pragma unroll
    for (int32 c = 0; c < COLUMNS; c++) {
        const int32 column = from.column + c;
        to.value[c] = column < s.v_size ? (W)widen(from.v[place * s.v_size + column]) : (W)0;
    }
    if (DELTA) to.beta = (W)widen(from.beta[token * s.betas + (s.betas == 1 ? 0 : from.head)]);
}

template <typename T, typename S, typename W, int ROWS, int COLUMNS, bool GATED, bool DELTA>
__device__ void linear_attention(T* y, S* last, const T* q, const T* k, const T* v, const S* past, const T* decay,
                                 const T* beta, const Linear& s) {
    const int32 lane = threadIdx.x % 32, parts = (s.v_size + COLUMNS - 1) / COLUMNS;
    const int64 unit = (int64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int32 number = unit / parts, column = unit % parts * COLUMNS;
    if (number >= s.states) return;
    const int64 batch = number / s.shared, first = batch * s.tokens;
    const Head<T> from = {q, k, v, decay, beta, number % s.shared, column};
    W state[ROWS][COLUMNS];
    const int64 start = (int64)number * s.size * s.v_size + column;
    #pragma unroll
    for (int32 i = 0; i < ROWS; i++) {
        #pragma unroll
        for (int32 c = 0; c < COLUMNS; c++) {
            const int32 d = lane + i * 32;
            const bool there = past && d < s.size && column + c < s.v_size;
            state[i][c] = there ? (W)widen(past[start + (int64)d * s.v_size + c]) : (W)0;
        }
    }
    Token<W, ROWS, COLUMNS> now;
    if (s.tokens > 0) read<GATED, DELTA>(now, from, first, s);
    for (int32 t = 0; t < s.tokens; t++) {
        // The next token is on its way while this one is worked on.
        Token<W, ROWS, COLUMNS> next;
        if (t + 1 < s.tokens) read<GATED, DELTA>(next, from, first + t + 1, s);
        #pragma unroll
        for (int32 c = 0; c < COLUMNS; c++) {
            W known = 0;
            #pragma unroll
            for (int32 i = 0; i < ROWS; i++) {
                if (GATED) state[i][c] *= now.decay[i];
                known += now.key[i] * state[i][c];
            }
            W value = now.value[c];
            if (DELTA) value = now.beta * (value - sum_of_warp(known));
            #pragma unroll
            for (int32 i = 0; i < ROWS; i++) state[i][c] += now.key[i] * value;
        }
        for (int32 g = 0; g < s.group; g++) {
            const int64 place = ((first + t) * s.shared + from.head) * s.group + g;
            if (g > 0) {
                #pragma unroll
                for (int32 i = 0; i < ROWS; i++) {
                    const int32 d = lane + i * 32;
                    now.query[i] = d < s.size ? (W)widen(q[place * s.size + d]) : (W)0;
                }
            }
            #pragma unroll
            for (int32 c = 0; c < COLUMNS; c++) {
                W found = 0;
                #pragma unroll
                for (int32 i = 0; i < ROWS; i++) found += now.query[i] * state[i][c];
                found = sum_of_warp(found) * (W)s.scale;
                if (lane == c && column + c < s.v_size) y[place * s.v_size + column + c] = Narrow<T>::from(found);
            }
        }
        now = next;
    }
    #pragma unroll
    for (int32 i = 0; i < ROWS; i++) {
        #pragma unroll
        for (int32 c = 0; c < COLUMNS; c++) {
            const int32 d = lane + i * 32;
            const bool there = d < s.size && column + c < s.v_size;
            if (there) last[start + (int64)d * s.v_size + c] = Narrow<S>::from(state[i][c]);
        }
    }
}
