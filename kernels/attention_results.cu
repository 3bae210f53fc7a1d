// What attention on tensor cores gives: its results, or what was gathered of a part of the keys.

constexpr float LOG2_E = 1.4426950408889634f;

// Eight neighbours of a row of the result.
template <typename T, typename Y>
__device__ __forceinline__ void put(Y* y, const Pack<uint32, 4>& pack, int32 row, int32 column, const Share& share,
                                    const Attend& s) {
    Y* to = y + share.row(s, s.y, share.first + row) + (int64)column * s.y[3];
    const Pack<Y, 8> results = Result<T, Y>::all(*(const Pack<T, 8>*)&pack, s);
    if (s.even) {
        *(Pack<Y, 8>*)to = results;
        return;
    }
    #pragma unroll
    for (int32 c = 0; c < 8; c++) {
        if (column + c < s.v_size) to[(int64)c * s.y[3]] = results.item[c];
    }
}

// The results of a warp's rows: through the shared memory that held its queries, so that 16 bytes are written at once.
template <typename T, int DV, int ROW, typename Y>
__device__ __forceinline__ void give(Y* y, T* own, const float (&value)[DV / 8][4], const float (&sum)[2], int32 first,
                                     const Share& share, const Attend& s) {
    const int32 lane = threadIdx.x % 32;
    // Other lanes have read queries where this one writes.
    __syncwarp();
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        const float over = __fdividef(1.0f, sum[i]);
        #pragma unroll
        for (int32 n = 0; n < DV / 8; n++) {
            const float low = sum[i] == 0.0f ? s.blind : value[n][i * 2] * over;
            const float high = sum[i] == 0.0f ? s.blind : value[n][i * 2 + 1] * over;
            *(uint32*)(own + (lane / 4 + i * 8) * ROW + n * 8 + lane % 4 * 2) = Two<T>::from(low, high);
        }
    }
    __syncwarp();
    #pragma unroll 4
    for (int32 i = lane; i < 16 * (DV / 8); i += 32) {
        const int32 row = i / (DV / 8), column = i % (DV / 8) * 8;
        if (share.first + first + row >= share.rows || column >= s.v_size) continue;
        put<T>(y, *(const Pack<uint32, 4>*)(own + row * ROW + column), first + row, column, share, s);
    }
}

// What a warp's rows gathered of a part of the keys.
template <int DV>
__device__ __forceinline__ void keep(float* partial, const float (&value)[DV / 8][4], const float (&greatest)[2],
                                     const float (&sum)[2], int32 first, const Share& share, const Attend& s) {
    const int32 lane = threadIdx.x % 32;
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        const int32 r = share.first + first + lane / 4 + i * 8;
        if (r >= share.rows) continue;
        const int64 number = share.number(s, r);
        if (lane % 4 == 0) {
            float* own = statistics(partial, s, share.split, number);
            own[0] = greatest[i];
            own[1] = sum[i];
        }
        float* to = gathered(partial, s, share.split, number);
        #pragma unroll
        for (int32 n = 0; n < DV / 8; n++) {
            #pragma unroll
            for (int32 c = 0; c < 2; c++) {
                const int32 column = n * 8 + lane % 4 * 2 + c;
                if (column < s.v_size) to[column] = value[n][i * 2 + c];
            }
        }
    }
}

// Joins what the warps gathered that have the same rows and other keys, and gives or keeps it.
template <typename T, int DV, int ROW_WARPS, int KEY_WARPS, int MASK, typename Y>
__device__ __forceinline__ void join(Y* y, float* partial, float* memory, const float (&value)[DV / 8][4],
                                     const float (&greatest)[2], const float (&sum)[2], const Share& share, const Attend& s) {
    // Of so many floats, rows of pairs that are written at once want other banks.
    constexpr int32 ROWS = ROW_WARPS * 16, THREADS = ROW_WARPS * KEY_WARPS * 32, ROW = DV + 8;
    typedef Pack<float, 2> Pair;
    Pair* const facts = (Pair*)(memory + KEY_WARPS * ROWS * ROW);
    const int32 lane = threadIdx.x % 32;
    // Whoever still reads keys and values there must be done.
    __syncthreads();
    #pragma unroll
    for (int32 i = 0; i < 2; i++) {
        const int32 row = threadIdx.x / 32 * 16 + lane / 4 + i * 8;
        if (lane % 4 == 0) facts[row] = {{greatest[i], sum[i]}};
        #pragma unroll
        for (int32 n = 0; n < DV / 8; n++) {
            *(Pair*)(memory + row * ROW + n * 8 + lane % 4 * 2) = {{value[n][i * 2], value[n][i * 2 + 1]}};
        }
    }
    __syncthreads();
    for (int32 i = threadIdx.x; i < ROWS * (DV / 8); i += THREADS) {
        const int32 row = i / (DV / 8), column = i % (DV / 8) * 8;
        if (share.first + row >= share.rows || column >= s.v_size) continue;
        float most = minus_infinity(), total = 0.0f, item[8] = {};
        #pragma unroll
        for (int32 k = 0; k < KEY_WARPS; k++) most = fmaxf(most, facts[k * ROWS + row].item[0]);
        const float base = most == minus_infinity() ? 0.0f : most;
        #pragma unroll
        for (int32 k = 0; k < KEY_WARPS; k++) {
            const Pair fact = facts[k * ROWS + row];
            const float weight = power_of_two((fact.item[0] - base) * (MASK == NUMBERS ? LOG2_E : 1.0f));
            total += fact.item[1] * weight;
            #pragma unroll
            for (int32 c = 0; c < 8; c += 4) {
                const Pack<float, 4> four = *(const Pack<float, 4>*)(memory + (k * ROWS + row) * ROW + column + c);
                #pragma unroll
                for (int32 e = 0; e < 4; e++) item[c + e] += four.item[e] * weight;
            }
        }
        if (s.splits.size > 1) {
            const int64 number = share.number(s, share.first + row);
            float* own = statistics(partial, s, share.split, number);
            if (column == 0) {
                own[0] = most;
                own[1] = total;
            }
            float* to = gathered(partial, s, share.split, number) + column;
            #pragma unroll
            for (int32 c = 0; c < 8; c++) {
                if (column + c < s.v_size) to[c] = item[c];
            }
            continue;
        }
        const float over = __fdividef(1.0f, total);
        Pack<uint32, 4> pack;
        #pragma unroll
        for (int32 c = 0; c < 8; c++) item[c] = total == 0.0f ? s.blind : item[c] * over;
        #pragma unroll
        for (int32 c = 0; c < 4; c++) pack.item[c] = Two<T>::from(item[c * 2], item[c * 2 + 1]);
        put<T>(y, pack, row, column, share, s);
    }
}
