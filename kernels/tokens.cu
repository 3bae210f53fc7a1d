// DynamicQuantizePerToken: a team of threads holds its row in registers; what is too long for that is read again.

struct Tokens {
    int32 rows, length, team;
};

template <typename X, int N>
struct QuantizeTokens {
    int8* codes;
    float* scales;
    const X* x;

    static __device__ __forceinline__ float most(float so_far, const float (&x)[N]) {
        #pragma unroll
        for (int k = 0; k < N; k++) so_far = f_max(so_far, fabsf(x[k]));
        return so_far;
    }

    __device__ __forceinline__ void write(const float (&x)[N], uint64 at, float inverse) const {
        Pack<int8, N> pack;
        #pragma unroll
        for (int k = 0; k < N; k++) pack.item[k] = (int8)TokenScale::code(x[k], inverse);
        *(Pack<int8, N>*)(codes + at) = pack;
    }

    // Each thread holds PACKS packs.
    template <int PACKS, bool BLOCK>
    __device__ __forceinline__ void held(const Tokens& s) const {
        const Member<BLOCK> me(s.team);
        const uint64 start = (uint64)me.row * s.length;
        const uint32 length = me.row < s.rows ? s.length : 0;
        float own[PACKS][N], greatest = 0;
        #pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const uint32 at = (p * me.team + me.number) * N;
            if (at >= length) continue;
            load<X, N>(own[p], x + start + at);
            greatest = most(greatest, own[p]);
        }
        const TokenScale scale(joined<Greatest<float>, BLOCK>(greatest, me.team));
        if (me.row < s.rows && me.number == 0) scales[me.row] = scale.scale;
        #pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const uint32 at = (p * me.team + me.number) * N;
            if (at < length) write(own[p], start + at, scale.inverse);
        }
    }

    // A block reads its row twice.
    __device__ __forceinline__ void streamed(const Tokens& s) const {
        const uint64 start = (uint64)blockIdx.x * s.length;
        const uint32 first = threadIdx.x * N, step = blockDim.x * N, length = s.length;
        float own[N], greatest = 0;
        for (uint32 at = first; at < length; at += step) {
            load<X, N>(own, x + start + at);
            greatest = most(greatest, own);
        }
        const TokenScale scale(joined<Greatest<float>, true>(greatest, 0));
        if (threadIdx.x == 0) scales[blockIdx.x] = scale.scale;
        for (uint32 at = first; at < length; at += step) {
            load<X, N>(own, x + start + at);
            write(own, start + at, scale.inverse);
        }
    }
};
