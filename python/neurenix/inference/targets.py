"""Where the output of a sliding window goes: memory, files that are mapped, zarr; as it comes, block by block."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurenix import arrays
from neurenix.errors import Error, FileError, InvalidArgumentError, ShapeError
from neurenix.inference.arrays_of import dtype_name, zeros
from neurenix.inference.images import Image, drop_pages, kind_of
from neurenix.inference.layout import Layout
from neurenix.inference.mapped import reserved, temporary
from neurenix.inference.windows import Ints
from neurenix.packages import need

#: The endings of files that are mapped, and of folders of chunks.
TIFF = (".tif", ".tiff")
ENDINGS = (".zarr", *TIFF, ".npy")


class Target:
    """An array of the output's shape that takes blocks."""

    def __init__(self, image: Image, layout: Layout, out: Any, goes_on: bool) -> None:
        self._image = image
        self._layout = layout
        self._squeezes = image.leading == 0 and layout.channels == 1
        self.shape = self._shape()
        self._chosen = out is not None and not isinstance(out, (str, os.PathLike))
        if self._chosen:
            self.array = out
            self._check(out)
        elif out is not None:
            self.array = self._file(Path(out), goes_on)
        else:
            self.array = self._new()

    def _shape(self) -> tuple[int, ...]:
        leading = (self._image.images, self._layout.channels)
        if self._squeezes:
            return self._layout.size
        return (*leading[2 - max(self._image.leading, 1) :], *self._layout.size)

    def _check(self, out: Any) -> None:
        kind_of(out)
        if tuple(out.shape) != self.shape:
            raise ShapeError("`out` has another shape than the output", expected=str(self.shape), got=str(out.shape))
        if not np.can_cast(np.dtype(self._layout.dtype), np.dtype(dtype_name(out)), "same_kind"):
            raise InvalidArgumentError("`out` can't hold the output", expected=self._layout.dtype, got=dtype_name(out))
        refusal = _refusal(out)
        if refusal:
            raise InvalidArgumentError(f"`out` can't be written to: {refusal}", expected="an array that takes values")

    def _new(self) -> Any:
        """An array of the image's kind."""
        dtype = self._layout.dtype
        if self._image.kind == "zarr":
            folder = tempfile.mkdtemp(prefix="neurenix-", suffix=".zarr")
            made = self._zarr(folder, "w")
            weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
            return made
        if self._image.kind in ("memmap", "dask"):
            return temporary(self.shape, dtype)
        return zeros(self.shape, self._image.like, dtype)

    def _file(self, path: Path, goes_on: bool) -> Any:
        # Mapping a file that was cut off would fill it up with zeros.
        length = path.stat().st_size if goes_on and path.is_file() else None
        try:
            found = self._opened(path) if goes_on else self._made(path)
        except Error:
            raise
        except (OSError, ValueError) as error:
            raise FileError(f"the output can't be written: {error}", got=str(path)) from error
        wanted, own = f"{self._layout.dtype}{list(self.shape)}", f"{dtype_name(found)}{list(found.shape)}"
        if own != wanted or (length is not None and path.stat().st_size != length):
            raise FileError(
                "the output that is there is not the one that was begun",
                expected=wanted,
                got=f"{path}: {own}",
                hint="overwrite=True begins anew",
            )
        return found

    def _made(self, path: Path) -> Any:
        if path.suffix == ".zarr":
            return self._zarr(path, "w")
        if path.suffix in TIFF:
            tifffile = need("tifffile", f"writing {path}")
            return reserved(tifffile.memmap(path, shape=self.shape, dtype=self._layout.dtype, bigtiff=True), path)
        return reserved(np.lib.format.open_memmap(path, "w+", np.dtype(self._layout.dtype), self.shape), path)

    def _opened(self, path: Path) -> Any:
        if path.suffix == ".zarr":
            return self._zarr(path, "r+")
        if path.suffix in TIFF:
            return need("tifffile", f"writing {path}").memmap(path, mode="r+")
        return np.lib.format.open_memmap(path, "r+")

    def _zarr(self, path: Any, mode: str) -> Any:
        """Chunks of as many rows as are finished at once, along the other axes like those of the image."""
        zarr = need("zarr", "an output in zarr")
        if mode == "r+":
            return zarr.open_array(str(path), mode=mode)
        return zarr.open_array(
            str(path), mode=mode, shape=self.shape, chunks=self._chunks(), dtype=self._layout.dtype, fill_value=0
        )

    def _chunks(self) -> tuple[int, ...]:
        grid, axes = self._layout.grid, len(self._layout.size)
        spatial = list(map(min, self._layout.size, self._layout.patch))
        if self._image.kind == "zarr":
            own = self._image.given.chunks[self._image.leading :]
            spatial = list(map(min, self._layout.size, own))
        starts = grid.starts[grid.slow]
        step = self._layout.at(grid.slow, starts[1] - starts[0]) if len(starts) > 1 else self._layout.size[grid.slow]
        spatial[grid.slow] = max(min(step, self._layout.size[grid.slow]), 1)
        return (
            *(1 if axis == 0 and self._image.leading == 2 else n for axis, n in enumerate(self.shape[:-axes])),
            *spatial,
        )

    def chunk(self, axis: int) -> int:
        """The extent of a chunk along a spatial axis; 1 of an array without chunks."""
        chunks = getattr(self.array, "chunks", None)
        extent = chunks[axis - len(self._layout.size)] if chunks is not None else 1
        # Those of Dask may differ.
        return int(extent) if isinstance(extent, int) else 1

    def part(self, image: int, corner: Ints, shape: Ints, like: Any) -> Any:
        """The elements of a block (channels, spatial axes) of an image, where they lie in memory as an array of the
        kind, device and dtype of `like`; else None.
        """
        array = self.array
        # A class of its own, such as masked arrays and MetaTensors, takes values in its own way; files too.
        if type(array) is not type(like) or isinstance(array, np.memmap) or array.dtype != like.dtype:
            return None
        if arrays.is_torch(array) and array.device != like.device:
            return None
        found = array[self._index(image, corner, shape)]
        return found[None] if self._squeezes else found

    def _index(self, image: int, corner: Ints, shape: Ints) -> tuple[Any, ...]:
        place = [slice(low, low + length) for low, length in zip(corner, shape[1:], strict=True)]
        index: Sequence[Any] = (slice(None), *place) if not self._squeezes else place
        return (image, *index) if self._image.leading == 2 else tuple(index)

    def write(self, image: int, corner: Ints, block: Any) -> None:
        """Writes a block (channels, spatial axes) of an image, from a corner on."""
        index = self._index(image, corner, block.shape)
        try:
            self._put(index, block[0] if self._squeezes else block)
        except OSError as error:
            raise FileError(
                f"the output can't be written: {error.strerror or error}",
                got=str(getattr(self.array, "store", type(self.array).__name__)),
                hint="what is written stays: with out= as a path, resume=True goes on with it",
            ) from error

    def _put(self, index: tuple[Any, ...], block: Any) -> None:
        target = self.array
        if arrays.is_torch(target):
            target[index] = arrays.like(block, target) if isinstance(block, np.ndarray) else block
        else:
            given = arrays.to_numpy(block)
            # Lazy arrays may keep what they are given, whose memory is used again.
            lazy = kind_of(target) in ("dask", "other")
            target[index] = given.astype(dtype_name(target), copy=lazy)

    def settle(self) -> None:
        """After a layer: nothing of a mapped file stays in this process's memory."""
        drop_pages(self.array)

    def result(self) -> Any:
        """The output, of the kind of the image, or `out`."""
        if isinstance(self.array, np.memmap):
            self.array.flush()
        if self._chosen or self._image.kind in ("numpy", "memmap", "zarr"):
            return self.array
        if self._image.kind == "dask":
            da = need("dask.array", "an output in Dask")
            return da.from_array(self.array, chunks=self._chunks())
        given = self._image.given
        if isinstance(self.array, np.memmap) or not isinstance(self.array, np.ndarray):
            found = self.array
        else:
            found = arrays.like(self.array, given)
        if hasattr(given, "copy_meta_from") and arrays.is_torch(found):
            found = type(given)(found)
            found.copy_meta_from(given, copy_attr=False)
        return found


def _refusal(out: Any) -> str | None:
    """Why an array takes no values; None where it does."""
    if arrays.is_torch(out):
        if out.requires_grad:
            return "it requires gradients"
        return "it lies on torch's meta device" if out.is_meta else None
    if isinstance(out, np.ndarray):
        return None if out.flags.writeable else "it is read-only"
    return "it is read-only" if getattr(out, "read_only", False) else None


def paths_of(out: Any, names: Sequence[str]) -> dict[str, Any]:
    """What each output goes into: a dict or a sequence of such, one for the only output, or a path for all of them,
    to which the names of the outputs are added.

    Raises `InvalidArgumentError` for another ending, or for outputs that have no place.
    """
    if out is None:
        return dict.fromkeys(names)
    if isinstance(out, dict):
        found = dict(out)
    elif isinstance(out, (list, tuple)):
        found = dict(zip(names, out, strict=False)) if len(out) == len(names) else {}
    elif isinstance(out, (str, os.PathLike)) and len(names) > 1:
        path = Path(out)
        found = {name: path.with_name(f"{path.stem}-{name}{path.suffix}") for name in names}
    else:
        found = {names[0]: out} if len(names) == 1 else {}
    if set(found) != set(names):
        raise InvalidArgumentError(
            "`out` is not for the outputs of the model",
            expected=", ".join(names),
            got=", ".join(map(str, found)) or repr(out),
        )
    for path in found.values():
        if isinstance(path, (str, os.PathLike)) and Path(path).suffix not in ENDINGS:
            raise InvalidArgumentError(
                "an output can't be written in this form", expected=", ".join(ENDINGS), got=str(path)
            )
    return {name: found[name] for name in names}
