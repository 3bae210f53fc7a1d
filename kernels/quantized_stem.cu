// Reads what `stem.cu` multiplies in 8 bits, and writes sums of these products. Behind it, `quantized.cuh` and a `Tail`.

// Pixels that are floats, quantized to codes Q.
template <typename T, typename Q>
struct AsCodes {
    QuantizeParams params;
    template <typename X>
    __device__ __forceinline__ uint16 operator()(X x) const {
        return bits<T>(Quantizer<Q>::of(widen(x), params));
    }
};

struct ScaledWriter {
    // What sums are multiplied by, what is added then, and what they begin with.
    static constexpr int LISTS = 3;
    Y0* y;
    Channels channels;
    Tail tail;
    // Whether eight results may be written at once, and as many operands read.
    bool wide;

    __device__ __forceinline__ float list(int32 number, int32 channel) const {
        return channels.scales[number * channels.pitch + channel];
    }
    __device__ __forceinline__ void write(const float (&sums)[8], const Pack<float, 8> (&lists)[3], uint64 place, int32 channel,
                                          const Shape& s) const {
        float eight[8];
        #pragma unroll
        for (int32 k = 0; k < 8; k++) {
            // Whole numbers are exact in float, as is their sum with the first one; floats begin with none.
            const float whole = sums[k] + (float)__float_as_int(lists[2].item[k]);
            eight[k] = scaled(whole, 0, lists[0].item[k], lists[1].item[k]);
        }
        const uint64 at = place * s.results + channel;
        Y0* const to = y + place * s.y_step + channel;
        if (wide) {
            *(Pack<Y0, 8>*)to = tail.pack(eight, at, channel);
        } else {
            for (int32 k = 0; k < 8; k++) to[k] = tail.one(eight[k], at + k, channel + k);
        }
    }
};
