"""Puts windows together as they come, with memory for one layer of them: what no later window reaches is given away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neurenix import arrays
from neurenix.errors import DTypeError, InvalidArgumentError, ShapeError
from neurenix.inference.arrays_of import FLOATS, dtype_name, zeros
from neurenix.inference.images import drop_pages
from neurenix.inference.mapped import temporary
from neurenix.inference.windows import Grid, Ints, resized

#: Where sums lie in a file, so many bytes of them at a time are in memory.
STRIP = 32 << 20


class Sink(Protocol):
    """What finished blocks go into."""

    def write(self, image: int, corner: Ints, block: Any) -> None:
        """Takes a block of an image (channels, spatial axes), and where it begins along each spatial axis."""

    def chunk(self, axis: int) -> int:
        """The extent along a spatial axis that is written at once, of an output in chunks; 1 elsewhere."""


@dataclass(frozen=True)
class Layout:
    """Where the windows of one output lie: the output's scale against the image, and the sizes that follow from it."""

    grid: Grid
    channels: int
    #: The size of a window of the output.
    patch: Ints
    dtype: str

    @classmethod
    def of(cls, grid: Grid, name: str, windows: Any) -> Layout:
        """From the first windows that came: rows, channels, spatial axes.

        Raises `ShapeError` for an output that is no image, or whose windows do not lie on whole elements, and
        `DTypeError` for labels that would have to be averaged.
        """
        patch = tuple(map(int, windows.shape[2:]))
        if len(patch) != len(grid.roi) or 0 in patch:
            raise ShapeError(
                "an output is no image with as many axes as the input",
                tensor=name,
                expected=f"rows, channels, and {len(grid.roi)} spatial axes",
                got=str(list(windows.shape)),
            )
        found = cls(grid, int(windows.shape[1]), patch, dtype_name(windows))
        found._check(name)
        return found

    def _check(self, name: str) -> None:
        if self.dtype not in FLOATS and self.grid.has_overlap:
            raise DTypeError(
                "windows overlap, and an output of this dtype has no mean",
                tensor=name,
                expected="floats, such as the scores that labels are the greatest of",
                got=self.dtype,
                hint="let the model give scores, and take the labels afterwards: postprocess=lambda y: y.argmax(1)",
            )
        for axis, starts in enumerate(self.grid.starts):
            for start in starts:
                low, high = self.at(axis, start), self.at(axis, start + self.grid.roi[axis])
                if high - low != self.patch[axis]:
                    raise ShapeError(
                        "the windows of an output do not lie on whole elements",
                        tensor=name,
                        expected="roi_size and overlap with which overlap * roi_size * scale is a whole number",
                        got=f"roi {self.grid.roi}, a window of the output {self.patch}, overlap {self.grid.overlap}",
                    )

    def at(self, axis: int, place: int) -> int:
        """The element of the output where a place of the (filled up) image lies."""
        if self.patch[axis] == self.grid.roi[axis]:
            return place
        return int(place * (self.patch[axis] / self.grid.roi[axis]))

    @property
    def whole(self) -> Ints:
        """The size of the output before what was filled up is cut off."""
        return tuple(self.at(axis, size) for axis, size in enumerate(self.grid.padded))

    @property
    def kept(self) -> tuple[slice, ...]:
        """What of it is the image's own."""
        found = []
        for axis, (size, padded, before) in enumerate(
            zip(self.grid.size, self.grid.padded, self.grid.before, strict=True)
        ):
            scale = self.patch[axis] / self.grid.roi[axis]
            whole = slice(0, self.whole[axis])
            found.append(whole if size == padded else slice(round(before * scale), round((before + size) * scale)))
        return tuple(found)

    @property
    def size(self) -> Ints:
        """The size of the output."""
        return tuple(part.stop - part.start for part in self.kept)

    @property
    def sum_dtype(self) -> str:
        """What windows are added in."""
        return {"float64": "float64"}.get(self.dtype, "float32") if self.dtype in FLOATS else self.dtype

    def bytes(self) -> int:
        """What a stitcher needs."""
        cross = int(np.prod([1, *(n for axis, n in enumerate(self.whole) if axis != self.grid.slow)]))
        return (self.channels + 1) * self.patch[self.grid.slow] * cross * np.dtype(self.sum_dtype).itemsize


class Stitcher:
    """One output: sums of weighted windows and of weights, over the rows of the slow axis that are under way."""

    def __init__(
        self, layout: Layout, weights: NDArray[np.float32], like: Any, sink: Sink, spill: bool, allow_gaps: bool
    ) -> None:
        self.layout = layout
        self._axis = layout.grid.slow
        #: The axis that strips lie along.
        self._across = next((axis for axis in range(len(layout.patch)) if axis != self._axis), None)
        self._sink = sink
        self._allow_gaps = allow_gaps
        self._blends = layout.dtype in FLOATS
        shaped = resized(weights, layout.patch)
        self._weights: Any = zeros(layout.patch, like, layout.sum_dtype)
        self._weights[...] = _as(shaped, like)
        self._is_plain = bool((shaped == 1).all()) or not self._blends
        rows = [n if axis != self._axis else layout.patch[axis] for axis, n in enumerate(layout.whole)]
        self._spill = spill
        counts = layout.sum_dtype if layout.sum_dtype in FLOATS else "float32"
        every = [layout.channels, *rows]
        self._sum: Any = temporary(every, layout.sum_dtype) if spill else zeros(every, like, layout.sum_dtype)
        self._count: Any = temporary(rows, counts) if spill else zeros(rows, like, counts)
        self._means: Any = None
        self._scratch: Any = zeros([layout.channels, *layout.patch], like, layout.sum_dtype)

    def add(self, corner: Ints, window: Any) -> None:
        """Adds a window (channels, spatial axes) of the layer that is under way."""
        place = tuple(
            slice(0, length) if axis == self._axis else slice(low := self.layout.at(axis, corner[axis]), low + length)
            for axis, length in enumerate(self.layout.patch)
        )
        index = (slice(None), *place)
        target = self._sum[index]
        if self._is_plain:
            if self._blends:
                target += window
            else:
                target[...] = window
        elif isinstance(window, np.ndarray):
            np.multiply(window, self._weights, out=self._scratch, casting="same_kind")
            target += self._scratch
        else:
            target.addcmul_(window.to(self._weights.dtype), self._weights)
        self._count[place] += self._weights if self._blends else 1
        self._let_go()

    def finish(self, image: int, layer: int, keep: bool = True) -> None:
        """Gives away the rows that the windows of later layers do not reach, and makes room for the next layer.

        With `keep` False nothing is given away: it was before.
        """
        starts = self.layout.grid.starts[self._axis]
        low = self.layout.at(self._axis, starts[layer])
        is_last = layer + 1 == len(starts)
        done = self.layout.patch[self._axis] if is_last else self.layout.at(self._axis, starts[layer + 1]) - low
        done = min(done, self.layout.patch[self._axis])
        if keep and done:
            self._give(image, low, done)
        self._move(self._sum, done, 1)
        self._move(self._count, done, 0)
        self._let_go()

    def _give(self, image: int, low: int, done: int) -> None:
        """Writes the means of the first rows, but for what was filled up."""
        kept = self.layout.kept
        own = kept[self._axis]
        begin, end = max(own.start - low, 0), min(own.stop - low, done)
        if begin >= end:
            return
        for strip in self._strips(kept):
            place = [slice(begin, end) if axis == self._axis else part for axis, part in enumerate(strip)]
            corner = [part.start - first.start for part, first in zip(strip, kept, strict=True)]
            corner[self._axis] = low + begin - own.start
            index = (slice(None), *place)
            block, count = self._sum[index], self._count[tuple(place)]
            if self._blends:
                self._check_gaps(count)
                block = self._mean(block, count)
            self._sink.write(image, tuple(corner), block)
            self._let_go()

    def _mean(self, block: Any, count: Any) -> Any:
        """The sums by their weights; arrays of numpy in memory that is used again, as new pages cost as much."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if not isinstance(block, np.ndarray):
                return block / count
            if self._means is None or self._means.shape != block.shape:
                self._means = np.empty(block.shape, block.dtype)
            return np.divide(block, count, out=self._means)

    def _strips(self, whole: tuple[slice, ...]) -> Iterator[tuple[slice, ...]]:
        """A part of the output in strips that fit into memory; in one where sums lie in memory themselves."""
        if not self._spill or self._across is None:
            yield whole
            return
        full, chunk = whole[self._across], self._sink.chunk(self._across)
        each = self._sum.nbytes // self.layout.whole[self._across] * chunk
        step = max(STRIP // max(each, 1), 1) * chunk
        for begin in range(full.start, full.stop, step):
            found = list(whole)
            found[self._across] = slice(begin, min(begin + step, full.stop))
            yield tuple(found)

    def _let_go(self) -> None:
        """What lies in a file is not to count as memory of this process."""
        for array in (self._sum, self._count) if self._spill else ():
            drop_pages(array)

    def _check_gaps(self, count: Any) -> None:
        if not self._allow_gaps and not bool((count > 0).all()):
            raise InvalidArgumentError(
                "some elements lie under windows of weight 0 alone",
                hint="give a roi_weight_map with weights above 0, or windows that overlap more",
            )

    def _move(self, sums: Any, done: int, first_axis: int) -> None:
        for strip in self._strips(tuple(slice(0, length) for length in self.layout.whole)):
            place: list[slice] = [slice(None)] * first_axis + list(strip)
            place[self._axis + first_axis] = slice(None)
            _shift(sums[tuple(place)], done, self._axis + first_axis)
            self._let_go()


def _shift(sums: Any, done: int, axis: int) -> None:
    """Moves what is behind the first rows to the front, and fills up with zeros."""
    ahead: list[slice] = [slice(None)] * sums.ndim
    kept, rest, moved = list(ahead), list(ahead), list(ahead)
    length = sums.shape[axis]
    kept[axis], moved[axis], rest[axis] = slice(0, length - done), slice(done, length), slice(length - done, length)
    if done < length:
        later = sums[tuple(moved)]
        sums[tuple(kept)] = later.copy() if isinstance(later, np.ndarray) else later.clone()
    sums[tuple(rest)] = 0


def _as(weights: NDArray[np.float32], like: Any) -> Any:
    return arrays.like(weights, like) if arrays.is_torch(like) else weights
