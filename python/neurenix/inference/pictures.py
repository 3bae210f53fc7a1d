"""Pictures put into the input of a model, and what came of it put back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurenix.errors import DTypeError, InvalidArgumentError
from neurenix.packages import need

#: What is around a picture that has another shape than the input, as detectors are trained with.
GREY = 114

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Fit:
    """How a picture was put into an input: input = picture * scale + offset, for x and y."""

    scale: tuple[float, float]
    offset: tuple[float, float]


def resized(picture: Picture, height: int, width: int) -> Picture:
    """The picture in another size, bilinear; by PyAV."""
    if picture.shape[:2] == (height, width):
        return picture
    av = need("av", "changing the size of a picture")
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
    found = frame.reformat(width=width, height=height, interpolation="BILINEAR").to_ndarray(format="rgb24")
    return np.asarray(found, np.uint8)


def stretched(picture: Picture, height: int, width: int) -> tuple[Picture, Fit]:
    """The whole picture, over the whole input."""
    rows, columns = picture.shape[:2]
    return resized(picture, height, width), Fit((width / columns, height / rows), (0, 0))


def letterboxed(picture: Picture, height: int, width: int) -> tuple[Picture, Fit]:
    """The picture in its own proportions, in the middle of the input, with grey around it."""
    rows, columns = picture.shape[:2]
    scale = min(height / rows, width / columns)
    tall, wide = max(round(rows * scale), 1), max(round(columns * scale), 1)
    top, left = (height - tall) // 2, (width - wide) // 2
    found = np.full((height, width, 3), GREY, np.uint8)
    found[top : top + tall, left : left + wide] = resized(picture, tall, wide)
    return found, Fit((wide / columns, tall / rows), (left, top))


def planes(picture: Picture, channels: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A picture as the only row of an input: [1, channels, height, width], from 0 to 1, or uint8 as it is.

    Raises `InvalidArgumentError` for another number of channels than 3 or 1, and `DTypeError` for other integers.
    """
    if channels not in (1, 3):
        raise InvalidArgumentError("pictures have 3 channels, or 1 for grey", got=str(channels))
    if dtype.kind in "iu" and dtype != np.uint8:
        raise DTypeError("pictures go into floats or uint8", expected="float32, float16 or uint8", got=dtype.name)
    found: NDArray[Any] = picture.transpose(2, 0, 1)[None]
    if channels == 1:
        # The luminance of Rec. 601, as everybody's grey.
        weights = np.array([0.299, 0.587, 0.114], np.float32)
        found = np.tensordot(picture.astype(np.float32), weights, 1)[None, None]
    if dtype == np.uint8:
        return np.ascontiguousarray(np.rint(found).astype(np.uint8))
    return np.ascontiguousarray((found * np.float32(1 / 255)).astype(dtype))
