"""What changes the shape: resampling, dimensions put together, windows."""

from __future__ import annotations

from collections.abc import Sequence

from neurenix.nn import checks
from neurenix.nn import functional as F
from neurenix.nn.functional.common import Ints
from neurenix.nn.functional.resampling import check_resampling
from neurenix.nn.module import Module
from neurenix.nn.traced import Traced


class Upsample(Module):
    """Resampling of the spatial dimensions, to a size or by a factor."""

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        check_resampling(size, scale_factor, mode)
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
        given = (self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)
        return F.interpolate(x, *given)

    def _describe(self) -> str:
        return f"size={self.size}, scale_factor={self.scale_factor}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample of [N, C, H, W] to the nearest pixels."""

    def __init__(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Upsample of [N, C, H, W] between four pixels, with the corners where they were."""

    def __init__(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """Channels to blocks of pixels: [N, C r r, H, W] to [N, C, H r, W r]."""

    def __init__(self, upscale_factor: int) -> None:
        checks.at_least(1, upscale_factor=upscale_factor)
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, x: Traced) -> Traced:
        """x [N, C r r, H, W]."""
        return F.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """Blocks of pixels to channels: [N, C, H r, W r] to [N, C r r, H, W]."""

    def __init__(self, downscale_factor: int) -> None:
        checks.at_least(1, downscale_factor=downscale_factor)
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, x: Traced) -> Traced:
        """x [N, C, H r, W r]."""
        return F.pixel_unshuffle(x, self.downscale_factor)


class ChannelShuffle(Module):
    """Channels of several groups in turns: [N, C, ...]."""

    def __init__(self, groups: int) -> None:
        checks.at_least(1, groups=groups)
        super().__init__()
        self.groups = groups

    def forward(self, x: Traced) -> Traced:
        """x [N, C, ...]."""
        return F.channel_shuffle(x, self.groups)


class Flatten(Module):
    """Dimensions from `start_dim` to `end_dim` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.flatten(x, self.start_dim, self.end_dim)


class Unflatten(Module):
    """One dimension as several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        checks.at_least(-1, unflattened_size=unflattened_size)
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return x.unflatten(self.dim, self.unflattened_size)


class Unfold(Module):
    """The windows of an image as columns: [N, C, H, W] to [N, C kh kw, windows]."""

    def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None:
        checks.at_least(1, kernel_size=kernel_size, dilation=dilation, stride=stride)
        checks.at_least(0, padding=padding)
        super().__init__()
        self.arguments = (kernel_size, dilation, padding, stride)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, H, W]."""
        return F.unfold(x, *self.arguments)


class Fold(Module):
    """Columns summed up into an image: [N, C kh kw, windows] to [N, C, H, W]."""

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        checks.at_least(1, kernel_size=kernel_size, dilation=dilation, stride=stride)
        checks.at_least(0, padding=padding)
        super().__init__()
        self.arguments = (output_size, kernel_size, dilation, padding, stride)

    def forward(self, x: Traced) -> Traced:
        """x [N, C kh kw, windows]."""
        return F.fold(x, *self.arguments)
