"""What every traced tensor has: its place in the network, and how layers are added behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix._native import Tensor
from neurenix.nn.traced.extent import Extent

if TYPE_CHECKING:
    from neurenix.nn.traced import Traced
    from neurenix.nn.tracing import Trace

Dim = int | str


class Base:
    """A tensor of a network that is traced."""

    __slots__ = ("tensor", "trace")

    def __init__(self, trace: Trace, tensor: Tensor) -> None:
        self.trace = trace
        self.tensor = tensor

    def __repr__(self) -> str:
        return f"Traced({self.tensor!r})"

    @property
    def shape(self) -> tuple[Any, ...]:
        """The extent of each dimension: an integer, or the name of a dynamic one, with which one may calculate."""
        dims = enumerate(self.tensor.shape)
        return tuple(dim if isinstance(dim, int) else Extent(dim, self, axis) for axis, dim in dims)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.tensor.shape)

    def dim(self) -> int:
        """The number of dimensions."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the extent of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def _add(self, op: str, *others: Any, **attrs: Any) -> Traced:
        """A layer on this tensor and others."""
        return self.trace.add(op, self.tensor, *others, **attrs)

    def _other(self, value: Any) -> Traced:
        """An operand beside this tensor; numbers take its dtype, and so do the extents of dynamic dimensions."""
        if isinstance(value, Base):
            return self.trace.wrap(value.tensor)
        if isinstance(value, Extent):
            number = value.traced()
            return number if number.dtype == self.dtype else number._add("Cast", to=self.dtype)
        if isinstance(value, np.ndarray):
            return self.trace.constant(value)
        return self.trace.wrap(self.trace.network.add_constant("constant", np.asarray(value, self.dtype)))
