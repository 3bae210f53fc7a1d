"""Convolutions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from neurenix import random
from neurenix.errors import InvalidArgumentError
from neurenix.nn import functional as F
from neurenix.nn.functional import Ints, spread
from neurenix.nn.module import Module, Parameter
from neurenix.nn.tracing import Traced


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
        output_padding: Ints = 0,
    ) -> None:
        super().__init__()
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            if not isinstance(count, int) or count < 1:
                raise InvalidArgumentError(f"{name} is a number of channels", expected="1 or more", got=repr(count))
        F.window_padding(padding, self.rank)
        if in_channels % groups or out_channels % groups:
            raise InvalidArgumentError(
                "channels do not divide into the groups", got=f"{in_channels} to {out_channels} in {groups} groups"
            )
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.output_padding = output_padding
        kernel = spread(kernel_size, self.rank)
        inner = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        fan_in = inner[1] * math.prod(kernel)
        self.weight = Parameter(random.kaiming_uniform((*inner, *kernel), fan_in))
        self.register_parameter("bias", random.kaiming_uniform((out_channels,), fan_in) if bias else None)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
        return F.conv(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

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
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, output_padding
        )

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...]."""
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
