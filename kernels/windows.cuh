// Images as the left operand of a product on Hopper (implicit GEMM). Behind `warpgroup.cu`.

// How windows look at images; channels of 8 bits are counted in pairs.
struct Windows {
    int32 channels, kernel_w;
    // Extents of the result.
    int32 height, width;
    int32 stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// The left operand as an im2col matrix: a row for each pixel of the result, and in it the channels of each tap.
struct LeftWindows {
    const TensorMap* map;
    Windows s;

    struct Steps {
        const TensorMap* map;
        const Windows& s;
        int32 x, y, image, channel = 0, tap_w = 0, tap_h = 0;

        __device__ __forceinline__ void bring(uint32 to, int32 depth, uint32 barrier) {
            bring_pixels(to, map, channel, x, y, image, (uint16)(tap_w * s.dilation_w), (uint16)(tap_h * s.dilation_h),
                         barrier);
            channel += depth;
            if (channel < s.channels) return;
            channel = 0;
            if (++tap_w < s.kernel_w) return;
            tap_w = 0;
            tap_h++;
        }
    };

    __device__ __forceinline__ void expect() const { expect_map(map); }
    template <typename L>
    __device__ __forceinline__ Steps of(const Tile<L>& tile) const {
        const int32 row = tile.row / s.width, image = row / s.height;
        return Steps{map, s, tile.row % s.width * s.stride_w - s.pad_w, row % s.height * s.stride_h - s.pad_h, image};
    }
};
