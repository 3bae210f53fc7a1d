// The scale of a token, a row of numbers, for DynamicQuantizePerToken: its greatest magnitude / 127.
struct TokenScale {
    float scale, inverse;

    __device__ __forceinline__ explicit TokenScale(float most) {
        // The least normal number, whose inverse is finite, for zeros.
        scale = f_max(f_product(most, 1.0f / 127.0f), 1.17549435e-38f);
        inverse = 1.0f / scale;
        if (!isfinite(most)) {
            scale = __int_as_float(0x7fc00000);
            inverse = 0;
        }
    }

    static __device__ __forceinline__ float code(float x, float inverse) {
        return inverse == 0 ? 0.0f : f_clip(rintf(f_product(x, inverse)), -127.0f, 127.0f);
    }
};
