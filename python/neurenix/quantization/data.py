"""Batches to calibrate on, however they come: arrays, iterables, loaders, folders of images and of arrays."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from neurenix import packages
from neurenix.arrays import Array, to_numpy
from neurenix.errors import FileError, InvalidArgumentError, UnsupportedError

#: What is read as an image.
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
#: The mean and deviation of ImageNet's colours, by which images of a folder are normalised as torchvision does.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

#: An input: its name and its shape, where names stand for what is open.
Port = tuple[str, Sequence[int | str]]


def batches(source: Any, inputs: Sequence[Port]) -> Iterator[dict[str, Array]]:
    """Each batch as arrays by the names of the inputs.

    `source`: a batch (an array, a dict of arrays by name, a tuple in the order of the inputs), an iterable of batches
    (a DataLoader, whose labels behind the inputs are left out, too), or a path: an `.npz` with an array for each
    input, an `.npy`, or a folder of such or of images, which are scaled to the input [N, 3, H, W] and normalised as
    ImageNet's are.

    Raises `InvalidArgumentError` for what holds no batch, `FileError` for paths that can't be read.
    """
    if isinstance(source, (str, os.PathLike)):
        yield from _read(Path(source), inputs)
    elif isinstance(source, (Mapping, tuple)) or hasattr(source, "shape"):
        yield _named(source, inputs)
    elif isinstance(source, Iterable):
        for batch in source:
            yield _named(batch, inputs)
    else:
        raise _wrong(source, inputs)


def _named(batch: Any, inputs: Sequence[Port]) -> dict[str, Array]:
    names = [name for name, _ in inputs]
    if isinstance(batch, Mapping):
        missing = [name for name in names if name not in batch]
        if missing:
            raise InvalidArgumentError(
                "a batch to calibrate on lacks an input",
                expected=", ".join(map(repr, names)),
                got=", ".join(map(repr, batch)) or "nothing",
            )
        return {name: to_numpy(batch[name]) for name in names}
    arrays = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    # Loaders give labels behind what a model reads.
    arrays = arrays[: len(names)]
    if len(arrays) != len(names) or not all(hasattr(array, "shape") for array in arrays):
        raise _wrong(batch, inputs)
    return dict(zip(names, map(to_numpy, arrays), strict=True))


def _wrong(batch: Any, inputs: Sequence[Port]) -> InvalidArgumentError:
    return InvalidArgumentError(
        "this is no batch to calibrate on",
        expected=f"arrays for {', '.join(repr(name) for name, _ in inputs)}",
        got=type(batch).__name__,
        hint='give dicts of arrays, as for a call: calibration=[{"input": x}, ...]',
    )


def _read(path: Path, inputs: Sequence[Port]) -> Iterator[dict[str, Array]]:
    if not path.exists():
        raise FileError("there is no such file or folder to calibrate on", got=str(path))
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    known = [file for file in files if file.suffix.lower() in (".npy", ".npz", *IMAGES)]
    if not known:
        raise FileError(
            "there is nothing to calibrate on",
            expected=f"files of .npy, .npz, {', '.join(IMAGES)}",
            got=f"{len(files)} other files in {path}",
        )
    for file in known:
        yield _named(_load(file, inputs), inputs)


def _load(file: Path, inputs: Sequence[Port]) -> Any:
    if file.suffix.lower() in IMAGES:
        return _image(file, inputs)
    try:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise FileError("a file to calibrate on can't be read", got=f"{file}: {error}") from error


def _image(file: Path, inputs: Sequence[Port]) -> Array:
    images = [shape for _, shape in inputs if len(shape) == 4 and shape[1] == 3]
    if len(inputs) != 1 or not images or not all(isinstance(extent, int) for extent in images[0][2:]):
        raise UnsupportedError(
            "images are read for models with one input [N, 3, H, W] of known height and width alone",
            got=", ".join(f"{name} {tuple(shape)}" for name, shape in inputs),
            hint="give batches: calibration=[{...}, ...]",
        )
    pillow = packages.need("PIL.Image", "to calibrate on images")
    height, width = (int(extent) for extent in images[0][2:])
    try:
        image = pillow.open(file).convert("RGB").resize((width, height))
    except OSError as error:
        raise FileError("an image to calibrate on can't be read", got=f"{file}: {error}") from error
    pixels = (np.asarray(image, np.float32) / 255 - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)
    batch: Array = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None].astype(np.float32))
    return np.repeat(batch, images[0][0], 0) if isinstance(images[0][0], int) else batch
