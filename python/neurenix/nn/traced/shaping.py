"""Other shapes, other orders, other dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix.errors import ShapeError
from neurenix.nn.traced.base import Base, Dim

if TYPE_CHECKING:
    from neurenix.nn.traced import Traced


def _listed(given: tuple[Any, ...]) -> Sequence[Any]:
    """What is given one by one, or as one list."""
    return given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


class Shaping(Base):
    """What changes no element."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Traced:
        """The same elements under another shape; -1 is what is left."""
        whole = self.trace.wrap(self.tensor)
        return self._add("Reshape", self.trace.shape(_listed(shape), whole), allowzero=1)

    view = reshape

    def view_as(self, other: Traced) -> Traced:
        """The same elements under the shape of another tensor."""
        return self.reshape(*other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Traced:
        """Dimensions from `start_dim` to `end_dim` as one."""
        if self.ndim == 0:
            return self.reshape(1)
        start, end = self._axis(start_dim), self._axis(end_dim)
        if start == 1 and end == self.ndim - 1:
            return self._add("Flatten", axis=1)
        return self.reshape(*self.shape[:start], -1, *self.shape[end + 1 :])

    def _axis(self, dim: int) -> int:
        """The number of a dimension from the front. Raises `ShapeError` for one that is not there."""
        if -self.ndim <= dim < self.ndim:
            return dim % self.ndim
        raise ShapeError(
            "there is no such dimension",
            tensor=self.tensor.name,
            expected=f"{-self.ndim} to {self.ndim - 1}",
            got=f"{dim} of {list(self.shape)}",
        )

    def unflatten(self, dim: int, sizes: Sequence[Any]) -> Traced:
        """One dimension as several."""
        dim %= self.ndim
        return self.reshape(*self.shape[:dim], *sizes, *self.shape[dim + 1 :])

    def permute(self, *dims: Any) -> Traced:
        """The dimensions in another order."""
        return self._add("Transpose", perm=[d % self.ndim for d in _listed(dims)])

    def transpose(self, dim0: int, dim1: int) -> Traced:
        """Two dimensions swapped."""
        order = list(range(self.ndim))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return self.permute(order)

    def t(self) -> Traced:
        """A matrix with rows and columns swapped."""
        return self.permute(list(reversed(range(self.ndim))))

    @property
    def T(self) -> Traced:
        """The dimensions in reverse."""
        return self.t()

    @property
    def mT(self) -> Traced:
        """The last two dimensions swapped."""
        return self.transpose(-2, -1)

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Traced:
        """Without dimensions of extent 1: those said that are, or all. Dynamic ones stay."""
        wanted = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
        return self._add("Squeeze", axes=axes) if (axes := [d for d in wanted if self.shape[d] == 1]) else self._same()

    def unsqueeze(self, dim: int) -> Traced:
        """With a new dimension of extent 1."""
        return self._add("Unsqueeze", axes=[dim])

    def expand(self, *shape: Any) -> Traced:
        """Dimensions of extent 1 repeated; -1 leaves one as it is."""
        dims = _listed(shape)
        own: list[Dim] = [1] * (len(dims) - self.ndim) + list(self.shape)
        wanted = [have if isinstance(want, int) and want == -1 else want
                  for have, want in zip(own, dims, strict=True)]  # fmt: skip
        return self._add("Expand", self.trace.shape(wanted, self.trace.wrap(self.tensor)))

    def expand_as(self, other: Traced) -> Traced:
        """Dimensions of extent 1 repeated until the shape is that of another tensor."""
        return self._add("Expand", other._add("Shape"))

    def repeat(self, *sizes: Any) -> Traced:
        """The tensor so many times along each dimension."""
        times = _listed(sizes)
        grown = self if len(times) == self.ndim else self.reshape(*[1] * (len(times) - self.ndim), *self.shape)
        return grown._add("Tile", self.trace.constant(np.array(times, np.int64)))

    def flip(self, *dims: Any) -> Traced:
        """Elements in reverse along dimensions."""
        axes = {d % self.ndim for d in _listed(dims)}
        key = tuple(slice(None, None, -1) if d in axes else slice(None) for d in range(self.ndim))
        return self._same()[key]

    def _same(self) -> Traced:
        return self.trace.wrap(self.tensor)

    def _along(self, dim: int, part: Any) -> Traced:
        """What stands in square brackets for one dimension alone."""
        before = (slice(None),) * (dim % self.ndim)
        return self._same()[before + (part,)]  # noqa: RUF005

    def narrow(self, dim: int, start: Any, length: int) -> Traced:
        """A stretch along a dimension."""
        return self._along(dim, slice(start, start + length))

    def select(self, dim: int, index: int) -> Traced:
        """One place of a dimension, which goes."""
        return self._along(dim, index)

    def index_select(self, dim: int, index: Any) -> Traced:
        """Places of a dimension by number."""
        return self._add("Gather", self.trace.integers(index), axis=dim)

    def gather(self, dim: int, index: Any) -> Traced:
        """For each place of `index`, the element of that number along a dimension."""
        return self._add("GatherElements", self.trace.integers(index), axis=dim)

    def unbind(self, dim: int = 0) -> list[Traced]:
        """The tensors along a dimension, without it."""
        return [self.select(dim, at) for at in range(self._extent(dim))]

    def chunk(self, chunks: int, dim: int = 0) -> list[Traced]:
        """Up to `chunks` equal parts along a dimension."""
        return self.split(-(-self._extent(dim) // chunks), dim)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> list[Traced]:
        """Parts of these sizes along a dimension."""
        if isinstance(split_size, int):
            extent = self._extent(dim)
            split_size = [min(split_size, extent - at) for at in range(0, extent, split_size)]
        return self.trace.add_all("Split", [self.trace.wrap(self.tensor)], axis=dim, split=list(split_size))

    def _extent(self, dim: int) -> int:
        extent = self.shape[dim]
        if isinstance(extent, int):
            return extent
        raise ShapeError("only a fixed dimension can be split", tensor=self.tensor.name, got=extent)

    def to(self, dtype: Any) -> Traced:
        """The same values as another dtype: numpy's, or its name."""
        return self._add("Cast", to=np.dtype(dtype))

    def type_as(self, other: Traced) -> Traced:
        """The same values as the dtype of another tensor."""
        return self.to(other.dtype)

    def float(self) -> Traced:
        """As float32."""
        return self.to(np.float32)

    def half(self) -> Traced:
        """As float16."""
        return self.to(np.float16)

    def long(self) -> Traced:
        """As int64."""
        return self.to(np.int64)

    def int(self) -> Traced:
        """As int32."""
        return self.to(np.int32)

    def bool(self) -> Traced:
        """Whether elements are other than 0."""
        return self.to(np.bool_)

    def contiguous(self) -> Traced:
        """The same: layouts are the planner's."""
        return self._same()

    clone = detach = contiguous
