"""The sums of the weights under which the elements of an output lie, which its sums are divided by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.inference.arrays_of import zeros
from neurenix.inference.images import drop_pages
from neurenix.inference.layout import Layout
from neurenix.inference.mapped import temporary

Place = Sequence[slice]


class Coverage(Protocol):
    """Sums of weights over the rows of the slow axis that are under way."""

    def add(self, place: Place) -> None:
        """Counts a window that lies there."""

    def under(self, layer: int, place: Place) -> Any:
        """The sums over rows that no window of a later layer reaches, counted from the first one of `layer`."""

    def move(self, done: int, strip: Place) -> None:
        """Makes room for the next layer, in a part of the rows: so many of them are finished."""


class Known:
    """Where every window is added, the sums follow from the grid: those of one layer are those of every other one.

    Raises `InvalidArgumentError` for elements that lie under no weight above 0.
    """

    def __init__(self, layout: Layout, weights: Any, spill: bool) -> None:
        self._layout, self._spill = layout, spill
        dtype = layout.sum_dtype
        self._layer = temporary(layout.rows, dtype) if spill else zeros(layout.rows, weights, dtype)
        for number in range(layout.grid.layer):
            self._layer[layout.place(layout.grid.window(number)[2])] += weights
            self._let_go()
        self._asked: Any = None
        self._found: Any = None

    def add(self, place: Place) -> None:
        """The window was counted before it came."""

    def under(self, layer: int, place: Place) -> Any:
        layout = self._layout
        axis = layout.grid.slow
        starts = [layout.at(axis, start) for start in layout.grid.starts[axis][: layer + 1]]
        offsets = [starts[-1] - start for start in starts if starts[-1] - start < layout.patch[axis]]
        asked = offsets, [(part.start, part.stop) for part in place]
        # In the middle of an image it is the same for every layer.
        if asked != self._asked:
            self._found = self._added(offsets, place)
            self._asked = asked
            self._let_go()
        return self._found

    def _added(self, offsets: Sequence[int], place: Place) -> Any:
        axis, length = self._layout.grid.slow, self._layout.patch[self._layout.grid.slow]
        own, index = place[axis], list(place)
        found = zeros([part.stop - part.start for part in place], self._layer, self._layout.sum_dtype)
        for offset in offsets:
            begin, end = own.start + offset, min(own.stop + offset, length)
            if begin < end:
                index[axis] = slice(begin, end)
                rows: list[slice] = [slice(None)] * len(place)
                rows[axis] = slice(0, end - begin)
                found[tuple(rows)] += self._layer[tuple(index)]
        if not bool(found.min() > 0):
            raise InvalidArgumentError(
                "some elements lie under windows of weight 0 alone",
                hint="give a roi_weight_map with weights above 0, or windows that overlap more",
            )
        return found

    def move(self, done: int, strip: Place) -> None:
        """Nothing is under way: the sums are those of a whole layer."""

    def _let_go(self) -> None:
        if self._spill:
            drop_pages(self._layer)


class Counted:
    """Where windows may be left out, the sums of those that came; 0 where none did."""

    def __init__(self, layout: Layout, weights: Any, spill: bool) -> None:
        self._weights, self._axis, self._spill = weights, layout.grid.slow, spill
        dtype = layout.sum_dtype
        self._sums = temporary(layout.rows, dtype) if spill else zeros(layout.rows, weights, dtype)

    def add(self, place: Place) -> None:
        self._sums[tuple(place)] += self._weights
        self._let_go()

    def under(self, layer: int, place: Place) -> Any:
        return self._sums[tuple(place)]

    def move(self, done: int, strip: Place) -> None:
        shift(self._sums[tuple(strip)], done, self._axis)
        self._let_go()

    def _let_go(self) -> None:
        if self._spill:
            drop_pages(self._sums)


def shift(sums: Any, done: int, axis: int) -> None:
    """Moves what is behind the first rows to the front, and fills up with zeros."""
    ahead: list[slice] = [slice(None)] * sums.ndim
    kept, rest, moved = list(ahead), list(ahead), list(ahead)
    length = sums.shape[axis]
    kept[axis], moved[axis], rest[axis] = slice(0, length - done), slice(done, length), slice(length - done, length)
    if done < length:
        later = sums[tuple(moved)]
        if 2 * done < length:
            later = later.copy() if isinstance(later, np.ndarray) else later.clone()
        sums[tuple(kept)] = later
    sums[tuple(rest)] = 0
