"""What every traced tensor has: its place in the network, and how layers are added behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix._native import Tensor
from neurenix.nn.traced import missing, promotion
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

    def __getattr__(self, name: str) -> Any:
        # Protocols that Python and numpy ask for are no methods that somebody wrote.
        raise AttributeError(name) if name.startswith("__") or name in Base.__slots__ else missing.method(name, self)

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

    def _as(self, dtype: Any) -> Traced:
        """This tensor as a dtype; without a layer where it is of it."""
        return self.trace.wrap(self.tensor) if self.dtype == dtype else self._add("Cast", to=np.dtype(dtype))

    def _pair(self, value: Any) -> tuple[Traced, Traced]:
        """This tensor and an operand, both in the dtype that PyTorch computes them in."""
        if isinstance(value, np.ndarray):
            value = self.trace.constant(value)
        if isinstance(value, Base):
            dtype = promotion.of_tensors(self.dtype, self.ndim, value.dtype, value.ndim)
            return self._as(dtype), value._as(dtype)
        mine = self._as(promotion.beside_number(self.dtype, 0 if isinstance(value, Extent) else value))
        return mine, mine._other(value)

    def _other(self, value: Any) -> Traced:
        """An operand in this tensor's dtype, unless it is a tensor itself."""
        if isinstance(value, Base):
            return self.trace.wrap(value.tensor)
        if isinstance(value, Extent):
            return value.traced()._as(self.dtype)
        if isinstance(value, np.ndarray):
            return self.trace.constant(value)
        return self.trace.wrap(self.trace.network.add_constant("constant", np.asarray(value, self.dtype)))
