"""Pooling, resampling, and what changes only the shape."""

from __future__ import annotations

from collections.abc import Sequence

from neurenix.nn import functional as F
from neurenix.nn.functional import Ints
from neurenix.nn.module import Module
from neurenix.nn.tracing import Traced


class _MaxPool(Module):
    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.arguments = (kernel_size, stride, padding, dilation, ceil_mode)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
        return F.max_pool(x, *self.arguments)

    def _describe(self) -> str:
        return f"kernel_size={self.arguments[0]}, stride={self.arguments[1]}, padding={self.arguments[2]}"


class MaxPool1d(_MaxPool):
    """The greatest element of each window of [N, C, L]."""


class MaxPool2d(_MaxPool):
    """The greatest element of each window of [N, C, H, W]."""


class MaxPool3d(_MaxPool):
    """The greatest element of each window of [N, C, D, H, W]."""


class _AvgPool(Module):
    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
        return F.avg_pool(x, *self.arguments)


class AvgPool1d(_AvgPool):
    """The mean of each window of [N, C, L]."""


class AvgPool2d(_AvgPool):
    """The mean of each window of [N, C, H, W]."""


class AvgPool3d(_AvgPool):
    """The mean of each window of [N, C, D, H, W]."""


class _AdaptiveAvgPool(Module):
    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
        return F.adaptive_avg_pool(x, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of equal parts of L of [N, C, L]."""


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of equal parts of H and W of [N, C, H, W]."""


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of equal parts of D, H and W of [N, C, D, H, W]."""


class _AdaptiveMaxPool(_AdaptiveAvgPool):
    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
        return F.adaptive_max_pool(x, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The greatest element of equal parts of L of [N, C, L]."""


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The greatest element of equal parts of H and W of [N, C, H, W]."""


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The greatest element of equal parts of D, H and W of [N, C, D, H, W]."""


class Upsample(Module):
    """Resampling of the spatial dimensions, to a size or by a factor."""

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
        return F.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)


class PixelShuffle(Module):
    """Channels to blocks of pixels: [N, C r r, H, W] to [N, C, H r, W r]."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, x: Traced) -> Traced:
        """x [N, C r r, H, W]."""
        return F.pixel_shuffle(x, self.upscale_factor)


class ZeroPad2d(Module):
    """Zeros around H and W: one number, or (left, right, top, bottom)."""

    def __init__(self, padding: Ints) -> None:
        super().__init__()
        self.padding = [padding] * 4 if isinstance(padding, int) else list(padding)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, H, W]."""
        return F.pad(x, self.padding)


class Flatten(Module):
    """Dimensions from `start_dim` to `end_dim` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.flatten(x, self.start_dim, self.end_dim)


class Dropout(Module):
    """The input: inference drops nothing."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return x


class Dropout2d(Dropout):
    """The input: inference drops nothing."""


class Dropout3d(Dropout):
    """The input: inference drops nothing."""
