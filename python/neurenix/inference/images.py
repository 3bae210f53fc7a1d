"""Images to read windows from: arrays of numpy and torch, files that are mapped, zarr, Dask."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix import arrays
from neurenix.errors import DTypeError, InvalidArgumentError, ShapeError
from neurenix.inference.arrays_of import dtype_name, is_array, is_on_gpu
from neurenix.inference.windows import PADDING, Grid, Ints

#: How the windows of each kind of image are read.
KINDS = "an array of numpy or torch, a numpy.memmap, a zarr.Array or a dask.array.Array"


class Image:
    """An image of which windows are read: images, channels, spatial axes; the first two may be missing.

    Raises `InvalidArgumentError` for what is no array, and `ShapeError` for another number of axes.
    """

    def __init__(self, given: Any, axes: int) -> None:
        self.given = given
        self.kind = kind_of(given)
        if self.kind == "torch":
            _check_dense(given)
            plain = arrays.settled(given).detach()
            self._array: Any = plain.as_tensor() if hasattr(plain, "as_tensor") else plain
            if not is_on_gpu(plain):
                self._array = arrays.to_numpy(self._array)
        elif self.kind == "other":
            self._array = arrays.to_numpy(given)
        else:
            self._array = given
        _check_elements(self._array)
        shape = tuple(int(n) for n in self._array.shape)
        #: How many of the axes of images and channels there are.
        self.leading = len(shape) - axes
        if not 0 <= self.leading <= 2:
            raise ShapeError(
                "the image has another number of axes than the model takes",
                expected=f"images, channels, and {axes} spatial axes; images, or both of the first two, may be missing",
                got=str(list(shape)),
                hint="channels come before the spatial axes, as in PyTorch",
            )
        self.shape = shape
        self.images = shape[0] if self.leading == 2 else 1
        self.size: Ints = shape[self.leading :]
        self.dtype = dtype_name(self._array)
        #: What new arrays are made beside.
        self.like = plain if self.kind == "torch" else np.empty(0)
        #: Whether a read costs more than a copy.
        self.is_costly = self.kind in ("zarr", "dask")

    def read(self, image: int, place: Sequence[slice]) -> Any:
        """The elements of a place in an image, with their channels."""
        index = (image, slice(None), *place)[2 - self.leading :]
        found = self._array[index]
        if self.kind == "dask":
            found = found.compute(scheduler="threads")
        if not arrays.is_torch(found):
            found = np.asarray(found)
        return found if self.leading else found[None]

    def check_channels(self, wanted: int | None) -> None:
        """Raises `ShapeError` for another number of channels; None is any number."""
        channels = self.shape[self.leading - 1] if self.leading else 1
        if wanted is None or channels == wanted:
            return
        last = self.shape[-1] == wanted and len(self.shape) > len(self.size)
        raise ShapeError(
            "the image has another number of channels than the model takes",
            expected=f"{wanted} in front of the {len(self.size)} spatial axes",
            got=f"{channels} in {list(self.shape)}",
            hint=f"the channels seem to come last: numpy.moveaxis(image, -1, {self.leading - 1})" if last else None,
        )

    def let_go(self) -> None:
        """Says that what was read of a mapped file is not needed any more: it would count as memory of this process."""
        if self.kind == "memmap":
            drop_pages(self._array)


def kind_of(given: Any) -> str:
    """What an image is: torch, numpy, memmap, zarr, dask, or another library's array.

    Raises `InvalidArgumentError` for what is no array.
    """
    if arrays.is_torch(given):
        return "torch"
    if isinstance(given, np.memmap):
        return "memmap"
    if isinstance(given, np.ndarray):
        return "numpy"
    package = type(given).__module__.partition(".")[0]
    if package in ("zarr", "dask") and is_array(given):
        return package
    if is_array(given) and (hasattr(given, "__dlpack__") or hasattr(given, "__array__")):
        return "other"
    hint = (
        "open one of its arrays: group['0']" if package == "zarr" else "open it first, for example with tifffile.memmap"
    )
    raise InvalidArgumentError(
        "this is no image", expected=KINDS, got=type(given).__name__, hint=hint if not is_array(given) else None
    )


def _check_dense(tensor: Any) -> None:
    """Raises `DTypeError` for tensors of torch whose elements do not stand for themselves."""
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise DTypeError(
            "the image is no plain tensor", expected="a dense tensor that is not quantized",
            got=f"{tensor.dtype}, {tensor.layout}", hint="image.dequantize()" if tensor.is_quantized else
            "image.to_dense()",
        )  # fmt: skip


def _check_elements(array: Any) -> None:
    """Raises `DTypeError` for elements that are no numbers or of which some are masked, and `ShapeError` for Dask's
    arrays of unknown size.
    """
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise DTypeError(
            "the image is masked, and windows have no masks", expected="a plain array", got="a masked array",
            hint="say what stands under the mask: image.filled(0)",
        )  # fmt: skip
    if isinstance(array.dtype, np.dtype) and array.dtype.kind in "SUV" and array.dtype.name not in arrays.SHARED:
        raise DTypeError("the elements of the image are no numbers", expected="floats or integers",
                         got=str(array.dtype))  # fmt: skip
    if any(n != n for n in array.shape):
        raise ShapeError(
            "Dask does not know the size of the image", got=str(array.shape), hint="image.compute_chunk_sizes()"
        )


def drop_pages(array: Any) -> None:
    """Takes the pages of a mapped file out of this process's memory; what was written is in the system's cache."""
    mapped = getattr(array, "_mmap", None)
    # Changes to a private map (mode "c") are nowhere else.
    if isinstance(mapped, mmap.mmap) and getattr(array, "mode", "c") in ("r", "r+", "w+"):
        mapped.madvise(mmap.MADV_DONTNEED)


class Windows:
    """Reads the windows of a grid. Where reading costs, each row along the slow axis is read once."""

    def __init__(self, image: Image, grid: Grid, padding: str, value: float, by_layer: bool) -> None:
        self._image = image
        self._grid = grid
        self._padding = padding
        self._value = value
        self._by_layer = by_layer
        self._layer: tuple[int, int] | None = None
        self._rows: Any = None
        self._begin = 0

    def bytes(self) -> int:
        """What the rows of a layer need."""
        if not self._by_layer:
            return 0
        channels = self._image.shape[self._image.leading - 1] if self._image.leading else 1
        cross = [n for axis, n in enumerate(self._grid.size) if axis != self._grid.slow]
        return int(
            channels * self._grid.roi[self._grid.slow] * np.prod([1, *cross]) * np.dtype(self._image.dtype).itemsize
        )

    def read(self, number: int) -> Any:
        """The window of a number: channels, spatial axes."""
        image, layer, corner = self._grid.window(number)
        place, widths = self._place(corner)
        found = self._of_layer(image, layer, place) if self._by_layer else self._image.read(image, place)
        return self._filled(found, widths) if any(before or after for before, after in widths) else found

    def read_alone(self, number: int) -> Any:
        """The same without what other windows have of its rows: where reading those fails, this one may be whole."""
        by_layer, self._by_layer = self._by_layer, False
        try:
            return self.read(number)
        finally:
            self._by_layer = by_layer

    def _place(self, corner: Ints) -> tuple[list[slice], list[tuple[int, int]]]:
        """What of the image a window covers, and how much is filled up in front of it and behind it."""
        place, widths = [], []
        for start, roi, size, before in zip(corner, self._grid.roi, self._grid.size, self._grid.before, strict=True):
            low, high = start - before, start - before + roi
            place.append(slice(max(low, 0), min(high, size)))
            widths.append((max(-low, 0), max(high - size, 0)))
        return place, widths

    def _of_layer(self, image: int, layer: int, place: list[slice]) -> Any:
        slow = self._grid.slow
        if self._layer != (image, layer):
            self._read_layer(image, layer, place[slow])
        within = list(place)
        within[slow] = slice(place[slow].start - self._begin, place[slow].stop - self._begin)
        index = (slice(None), *within)
        return self._rows[index]

    def _read_layer(self, image: int, layer: int, rows: slice) -> None:
        """Reads the rows of a layer that the layer before it does not have."""
        slow, begin = self._grid.slow, rows.start
        parts = []
        if self._layer is not None and self._layer[0] == image and self._layer[1] < layer:
            end = self._begin + self._rows.shape[1 + slow]
            if self._begin <= begin < end <= rows.stop:
                old: list[slice] = [slice(None)] * self._rows.ndim
                old[1 + slow] = slice(begin - self._begin, None)
                parts.append(self._rows[tuple(old)].copy())
                begin = end
        # Neither what was there nor a half of it stands where a read fails.
        self._layer = self._rows = None
        if begin < rows.stop:
            whole = [slice(0, size) for size in self._grid.size]
            whole[slow] = slice(begin, rows.stop)
            parts.append(self._image.read(image, whole))
        self._rows = parts[0] if len(parts) == 1 else np.concatenate(parts, 1 + slow)
        self._layer, self._begin = (image, layer), rows.start

    def _filled(self, window: Any, widths: list[tuple[int, int]]) -> Any:
        if arrays.is_torch(window):
            flat = [width for pair in reversed(widths) for width in pair]
            pad = sys.modules["torch"].nn.functional.pad
            value = {"value": self._value} if self._padding == "constant" else {}
            return pad(window[None], flat, self._padding, **value)[0]
        value = {"constant_values": self._value} if self._padding == "constant" else {}
        return np.pad(window, [(0, 0), *widths], PADDING[self._padding], **value)  # type: ignore[call-overload]
