"""Puts windows together as they come, with memory for one layer of them: what no later window reaches is given away."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neurenix import arrays
from neurenix.inference.arrays_of import FLOATS, is_on_gpu, zeros
from neurenix.inference.coverage import Counted, Coverage, Known, shift
from neurenix.inference.images import drop_pages
from neurenix.inference.layout import Layout
from neurenix.inference.mapped import temporary
from neurenix.inference.windows import Ints, resized

#: Where sums lie in a file, so many bytes of them at a time are in memory.
STRIP = 32 << 20


class Sink(Protocol):
    """What finished blocks go into."""

    def write(self, image: int, corner: Ints, block: Any) -> None:
        """Takes a block of an image (channels, spatial axes), and where it begins along each spatial axis."""

    def part(self, image: int, corner: Ints, shape: Ints, like: Any) -> Any:
        """Where the elements of such a block lie, for who computes them: an array of the kind and dtype of `like`;
        None where there is none.
        """

    def chunk(self, axis: int) -> int:
        """The extent along a spatial axis that is written at once, of an output in chunks; 1 elsewhere."""


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
        self._blends = layout.dtype in FLOATS
        if not is_on_gpu(like) and (spill or not self._blends):
            like = np.empty(0)
        shaped = resized(weights, layout.patch)
        self._weights: Any = zeros(layout.patch, like, layout.sum_dtype)
        self._weights[...] = arrays.like(shaped, like)
        self._is_plain = bool((shaped == 1).all()) or not self._blends
        self._spill = spill
        every = [layout.channels, *layout.rows]
        self._sum: Any = temporary(every, layout.sum_dtype) if spill else zeros(every, like, layout.sum_dtype)
        self._coverage: Coverage | None = None
        if self._blends:
            self._coverage = (Counted if allow_gaps else Known)(layout, self._weights, spill)
        self._means: Any = None
        # Torch adds products in one step.
        weighted = [layout.channels, *layout.patch] if isinstance(self._sum, np.ndarray) else 0
        self._scratch = np.empty(weighted, layout.sum_dtype)

    def prepared(self, windows: Any) -> Any:
        """Windows as an array of the library that the sums are of."""
        if isinstance(self._sum, np.ndarray):
            return arrays.to_numpy(windows)
        return arrays.like(windows, self._sum) if isinstance(windows, np.ndarray) else windows

    def add(self, corner: Ints, window: Any) -> None:
        """Adds a window (channels, spatial axes), as `prepared` gave it, of the layer that is under way."""
        place = self.layout.place(corner)
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
        if self._coverage:
            self._coverage.add(place)
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
            self._give(image, layer, low, done)
        if not is_last or image + 1 < self.layout.grid.images:
            self._move(done)

    def _give(self, image: int, layer: int, low: int, done: int) -> None:
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
            block = self._sum[index]
            if self._coverage:
                self._write_mean(image, tuple(corner), block, self._coverage.under(layer, place))
            else:
                self._sink.write(image, tuple(corner), block)
            self._let_go()

    def _write_mean(self, image: int, corner: Ints, block: Any, count: Any) -> None:
        """The sums by their weights, into the output itself or by way of memory that is used again: new pages cost as
        much.
        """
        part = self._sink.part(image, corner, tuple(block.shape), block)
        if part is None and (self._means is None or self._means.shape != block.shape):
            self._means = zeros(block.shape, self._sum, self.layout.sum_dtype)
        means = self._means if part is None else part
        if isinstance(block, np.ndarray):
            with np.errstate(invalid="ignore", divide="ignore"):
                np.divide(block, count, out=means)
        else:
            sys.modules["torch"].div(block, count, out=means)
        if part is None:
            self._sink.write(image, corner, means)

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
        if self._spill:
            drop_pages(self._sum)

    def _move(self, done: int) -> None:
        for strip in self._strips(tuple(slice(0, length) for length in self.layout.rows)):
            place = (slice(None), *strip)
            shift(self._sum[place], done, self._axis + 1)
            if self._coverage:
                self._coverage.move(done, strip)
            self._let_go()
