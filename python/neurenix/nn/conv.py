"""Convolutions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from neurenix import random
from neurenix.errors import InvalidArgumentError
from neurenix.nn import checks
from neurenix.nn import functional as F
from neurenix.nn.functional.common import Ints, per_batch, spread
from neurenix.nn.functional.convolution import window_padding
from neurenix.nn.module import Module, Parameter
from neurenix.nn.traced import Traced

#: What may stand around the input.
_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(Module):
    rank: ClassVar[int]
    transposed: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints | str = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        super().__init__()
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            if not isinstance(count, int) or count < 1:
                raise InvalidArgumentError(f"{name} is a number of channels", expected="1 or more", got=repr(count))
        checks.at_least(1, kernel_size=kernel_size, stride=stride, dilation=dilation)
        checks.at_least(0, padding=None if isinstance(padding, str) else padding)
        window_padding(padding, self.rank, stride)
        if in_channels % groups or out_channels % groups:
            raise InvalidArgumentError(
                "channels do not divide into the groups", got=f"{in_channels} to {out_channels} in {groups} groups"
            )
        if padding_mode not in _MODES:
            raise InvalidArgumentError("padding_mode is unknown", expected=", ".join(_MODES), got=repr(padding_mode))
        self.in_channels, self.out_channels = in_channels, out_channels
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.padding_mode = padding_mode
        kernel = spread(kernel_size, self.rank)
        inner = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        fan_in = inner[1] * math.prod(kernel)
        self.weight = Parameter(random.kaiming_uniform((*inner, *kernel), fan_in))
        self.register_parameter("bias", random.kaiming_uniform((out_channels,), fan_in) if bias else None)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...] or [C, spatial...]."""
        if self.padding_mode == "zeros":
            return F.conv(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        x = per_batch(x, self.rank, lambda x: F.pad(x, self._around(), self.padding_mode))
        return F.conv(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def _around(self) -> list[int]:
        """What is padded before and after each dimension, the last one first."""
        if not isinstance(self.padding, str):
            return [pad for pad in reversed(spread(self.padding, self.rank)) for _ in range(2)]
        if self.padding == "valid":
            return [0] * (2 * self.rank)
        steps = zip(spread(self.dilation, self.rank), self.weight.shape[2:], strict=True)
        sums = [dilation * (extent - 1) for dilation, extent in steps]
        return [part for total in reversed(sums) for part in (total // 2, total - total // 2)]

    bias: Any

    def _describe(self) -> str:
        return f"{list(self.weight.shape)}, stride={self.stride}, padding={self.padding}"


class Conv1d(_Conv):
    """Convolution over one spatial dimension: x [N, C, L]."""

    rank = 1


class Conv2d(_Conv):
    """Convolution over two spatial dimensions: x [N, C, H, W]."""

    rank = 2


class Conv3d(_Conv):
    """Convolution over three spatial dimensions: x [N, C, D, H, W]."""

    rank = 3


class _ConvTranspose(_Conv):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros" or isinstance(padding, str):
            raise InvalidArgumentError(
                "a transposed convolution is padded by numbers of zeros", got=f"{padding!r}, {padding_mode!r}"
            )
        checks.at_least(0, output_padding=output_padding)
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, device=device, dtype=dtype
        )
        self.output_padding = output_padding

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...] or [C, spatial...]."""
        assert not isinstance(self.padding, str)
        return F.conv_transpose(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over one spatial dimension."""

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over two spatial dimensions."""

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over three spatial dimensions."""

    rank = 3
