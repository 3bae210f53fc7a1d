"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from neurenix.errors import InvalidArgumentError
from neurenix.nn import checks
from neurenix.nn.functional import pooling
from neurenix.nn.functional.common import Ints
from neurenix.nn.functional.pooling import Sizes
from neurenix.nn.module import Module
from neurenix.nn.traced import Traced


class _Pool(Module):
    rank: ClassVar[int]
    arguments: tuple[Any, ...]

    def _describe(self) -> str:
        return ", ".join(map(str, self.arguments))


def _check(kernel_size: Ints, stride: Ints | None, padding: Ints) -> None:
    checks.at_least(1, kernel_size=kernel_size, stride=stride)
    checks.at_least(0, padding=padding)


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        _check(kernel_size, stride, padding)
        checks.at_least(1, dilation=dilation)
        super().__init__()
        self.arguments = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def forward(self, x: Traced) -> Any:
        """x [N, C, spatial...] or [C, spatial...]; with `return_indices` also where in its channel each element is."""
        return pooling.max_pool(self.rank, x, *self.arguments)


class MaxPool1d(_MaxPool):
    """The greatest element of each window of [N, C, L]."""

    rank = 1


class MaxPool2d(_MaxPool):
    """The greatest element of each window of [N, C, H, W]."""

    rank = 2


class MaxPool3d(_MaxPool):
    """The greatest element of each window of [N, C, D, H, W]."""

    rank = 3


class _MaxUnpool(_Pool):
    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        _check(kernel_size, stride, padding)
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.arguments = (kernel_size, stride, padding)

    def forward(self, x: Traced, indices: Traced, output_size: Sequence[int] | None = None) -> Traced:
        """x [N, C, spatial...] and the indices of a MaxPool."""
        return pooling.max_unpool(self.rank, x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """The elements of MaxPool1d back where they were."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """The elements of MaxPool2d back where they were."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The elements of MaxPool3d back where they were."""

    rank = 3


class AvgPool1d(_Pool):
    """The mean of each window of [N, C, L]."""

    rank = 1

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        _check(kernel_size, stride, padding)
        super().__init__()
        self.arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...] or [C, spatial...]."""
        return pooling.avg_pool(self.rank, x, *self.arguments)


class AvgPool2d(AvgPool1d):
    """The mean of each window of [N, C, H, W]."""

    rank = 2

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        if divisor_override == 0:
            raise InvalidArgumentError("divisor_override divides, so it is not 0", got="0")
        self.arguments += (divisor_override,)


class AvgPool3d(AvgPool2d):
    """The mean of each window of [N, C, D, H, W]."""

    rank = 3


class _LPPool(_Pool):
    def __init__(
        self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
    ) -> None:
        _check(kernel_size, stride, 0)
        super().__init__()
        self.arguments = (norm_type, kernel_size, stride, ceil_mode)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...] or [C, spatial...]."""
        return pooling.lp_pool(self.rank, x, *self.arguments)


class LPPool1d(_LPPool):
    """The root of the sum of powers of each window of [N, C, L]."""

    rank = 1


class LPPool2d(_LPPool):
    """The root of the sum of powers of each window of [N, C, H, W]."""

    rank = 2


class LPPool3d(_LPPool):
    """The root of the sum of powers of each window of [N, C, D, H, W]."""

    rank = 3


class _AdaptiveAvgPool(_Pool):
    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        self.arguments = (output_size,)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...] or [C, spatial...]."""
        return pooling.adaptive_avg_pool(self.rank, x, *self.arguments)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of parts of L of [N, C, L]."""

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of parts of H and W of [N, C, H, W]."""

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of parts of D, H and W of [N, C, D, H, W]."""

    rank = 3


class _AdaptiveMaxPool(_Pool):
    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__()
        self.arguments = (output_size, return_indices)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...] or [C, spatial...]."""
        return pooling.adaptive_max_pool(self.rank, x, *self.arguments)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The greatest element of parts of L of [N, C, L]."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The greatest element of parts of H and W of [N, C, H, W]."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The greatest element of parts of D, H and W of [N, C, D, H, W]."""

    rank = 3
