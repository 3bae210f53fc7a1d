"""Where the windows of an output lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurenix.errors import DTypeError, ShapeError
from neurenix.inference.arrays_of import FLOATS, dtype_name
from neurenix.inference.windows import Grid, Ints


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

    @property
    def rows(self) -> Ints:
        """The size of what is under way at once: the output's, but along the slow axis the window's."""
        return tuple(self.patch[axis] if axis == self.grid.slow else n for axis, n in enumerate(self.whole))

    def place(self, corner: Ints) -> tuple[slice, ...]:
        """Where a window whose corner is there lies in the rows of its layer."""
        lows = [0 if axis == self.grid.slow else self.at(axis, start) for axis, start in enumerate(corner)]
        return tuple(slice(low, low + length) for low, length in zip(lows, self.patch, strict=True))

    def bytes(self) -> int:
        """What a stitcher needs."""
        return (self.channels + 1) * math.prod(self.rows) * np.dtype(self.sum_dtype).itemsize
