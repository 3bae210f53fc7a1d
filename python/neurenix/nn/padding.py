"""Padding."""

from __future__ import annotations

from typing import ClassVar

from neurenix.nn import functional as F
from neurenix.nn.functional.common import Ints, per_batch, spread
from neurenix.nn.module import Module
from neurenix.nn.traced import Traced


class _Pad(Module):
    rank: ClassVar[int]
    mode: ClassVar[str] = "constant"
    value: float = 0.0

    def __init__(self, padding: Ints) -> None:
        super().__init__()
        self.padding = spread(padding, 2 * self.rank)

    def forward(self, x: Traced) -> Traced:
        """x [N, C, spatial...] or [C, spatial...]."""
        return per_batch(x, self.rank, lambda x: F.pad(x, self.padding, self.mode, self.value))

    def _describe(self) -> str:
        return str(self.padding)


class ZeroPad1d(_Pad):
    """Zeros around L: one number, or (left, right)."""

    rank = 1


class ZeroPad2d(_Pad):
    """Zeros around H and W: one number, or (left, right, top, bottom)."""

    rank = 2


class ZeroPad3d(_Pad):
    """Zeros around D, H and W: one number, or (left, right, top, bottom, front, back)."""

    rank = 3


class _ConstantPad(_Pad):
    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value


class ConstantPad1d(_ConstantPad):
    """A value around L."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """A value around H and W."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """A value around D, H and W."""

    rank = 3


class ReflectionPad1d(_Pad):
    """L mirrored at its ends, which come once."""

    rank, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """H and W mirrored at their ends, which come once."""

    rank, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """D, H and W mirrored at their ends, which come once."""

    rank, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The ends of L, repeated."""

    rank, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The ends of H and W, repeated."""

    rank, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The ends of D, H and W, repeated."""

    rank, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """L, as if its ends met."""

    rank, mode = 1, "circular"


class CircularPad2d(_Pad):
    """H and W, as if their ends met."""

    rank, mode = 2, "circular"


class CircularPad3d(_Pad):
    """D, H and W, as if their ends met."""

    rank, mode = 3, "circular"
