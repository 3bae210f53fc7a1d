"""Elements in order, and in other places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from neurenix.nn.traced.base import Base

if TYPE_CHECKING:
    from neurenix.nn.traced import Traced


class Ordering(Base):
    """What puts elements in another order."""

    __slots__ = ()

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Traced, Traced]:
        """The k greatest (or least) along a dimension, and where they are."""
        return self._ranked(self.trace.constant(np.array([k], np.int64)), dim, largest, sorted)

    def _ranked(self, count: Traced, dim: int, largest: bool, in_order: bool) -> tuple[Traced, Traced]:
        attrs = {"axis": dim, "largest": int(largest), "sorted": int(in_order)}
        values, places = self.trace.add_all("TopK", [self.tensor, count], **attrs)
        return values, places

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> tuple[Traced, Traced]:
        """The elements along a dimension in order, the least first, and where they were; equal ones stay in order."""
        axis = dim % self.ndim
        return self._ranked(self._add("Shape", start=axis, end=axis + 1), dim, descending, True)

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> Traced:
        """Where the elements of `sort` were."""
        return self.sort(dim, descending)[1]

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Traced:
        """Elements moved along fixed dimensions, from the end to the start; without dimensions, along all as one."""
        x = self.trace.wrap(self.tensor)
        if dims is None:
            return x.flatten().roll(shifts, 0).reshape(*x.shape)
        several = [[given] if isinstance(given, int) else list(given) for given in (shifts, dims)]
        for shift, dim in zip(*several, strict=True):
            extent = x._extent(dim)
            if extent and shift % extent:
                x = x.index_select(dim, np.roll(np.arange(extent), shift))
        return x
