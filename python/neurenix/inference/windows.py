"""Where the windows of a sliding window stand, and what each counts where they overlap: MONAI's meanings."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurenix import arrays
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.names import hint

MODES = ("constant", "gaussian")
#: The ways to fill up an image that is smaller than a window, as torch calls them, and as numpy does.
PADDING = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}

#: The least weight of an element of a window, beside the greatest, which is 1.
LEAST_WEIGHT = 1e-3

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Grid:
    """The windows over images of one size.

    `size` is that of the image and `roi` that of a window, along each spatial axis; where the image is smaller, it is
    filled up at both ends. `slow` is the axis along which the windows go last.
    """

    images: int
    size: Ints
    roi: Ints
    overlap: tuple[float, ...]

    @classmethod
    def of(cls, images: int, size: Sequence[int], roi_size: Any, overlap: Any) -> Grid:
        """The windows as a caller asks for them: a size of None, or below 1, is that of the image.

        Raises `InvalidArgumentError` for what is no size or overlap, and `ShapeError` for an image without elements.
        """
        axes = len(size)
        if any(length < 1 for length in size) or images < 1:
            raise ShapeError("the image has no elements", got=str([images, *size]))
        given = _each(roi_size, axes, "roi_size", (numbers.Integral, type(None)))
        roi = tuple(int(r) if r is not None and r > 0 else length for r, length in zip(given, size, strict=True))
        shares = tuple(float(share) for share in _each(overlap, axes, "overlap", (numbers.Real,)))
        if not all(0 <= share < 1 for share in shares):
            raise InvalidArgumentError(
                "overlap is the share of a window that the next one covers too",
                expected="0 <= overlap < 1",
                got=repr(overlap),
            )
        return cls(images, tuple(size), roi, shares)

    @cached_property
    def padded(self) -> Ints:
        """The size of the image after filling up."""
        return tuple(map(max, self.size, self.roi))

    @cached_property
    def before(self) -> Ints:
        """How much is filled up in front of the image along each axis."""
        return tuple((p - s) // 2 for p, s in zip(self.padded, self.size, strict=True))

    @cached_property
    def starts(self) -> tuple[Ints, ...]:
        """Where windows begin along each axis; the last one ends where the image does."""
        return tuple(map(_starts, self.padded, self.roi, self.overlap))

    @cached_property
    def slow(self) -> int:
        """The axis along which the fewest elements lie under windows that begin at the same place."""
        shares = [r / p for r, p in zip(self.roi, self.padded, strict=True)]
        return shares.index(min(shares))

    @cached_property
    def _order(self) -> Ints:
        return (self.slow, *(axis for axis in range(len(self.roi)) if axis != self.slow))

    @cached_property
    def layer(self) -> int:
        """The windows of an image that begin at the same place of the slow axis."""
        return math.prod(len(starts) for axis, starts in enumerate(self.starts) if axis != self.slow)

    @property
    def layers(self) -> int:
        """The places of the slow axis where windows begin."""
        return len(self.starts[self.slow])

    def __len__(self) -> int:
        return self.images * self.layers * self.layer

    def window(self, number: int) -> tuple[int, int, Ints]:
        """The image, the layer and the corner of a window."""
        corner, place = [0] * len(self.roi), 0
        for axis in reversed(self._order):
            starts = self.starts[axis]
            number, place = divmod(number, len(starts))
            corner[axis] = starts[place]
        return number, place, tuple(corner)

    def batches(self, size: int, first: int = 0) -> Iterator[range]:
        """The numbers of the windows, so many at once, from the batch on that has the window `first`."""
        for begin in range(first - first % size, len(self), size):
            yield range(begin, min(begin + size, len(self)))

    def first_needed(self, image: int, layer: int) -> int:
        """The first window that reaches to what lies behind the beginning of a layer."""
        if image >= self.images:
            return len(self)
        starts = self.starts[self.slow]
        reach = [k for k in range(layer + 1) if starts[k] + self.roi[self.slow] > starts[layer]]
        return (image * self.layers + min(reach)) * self.layer

    @property
    def has_overlap(self) -> bool:
        """Whether some element lies under several windows."""
        return any(
            later < earlier + length
            for starts, length in zip(self.starts, self.roi, strict=True)
            for earlier, later in itertools.pairwise(starts)
        )


def _starts(size: int, roi: int, overlap: float) -> Ints:
    step = roi if size == roi else max(int(roi * (1 - overlap)), 1)
    count = max(math.ceil((size - roi) / step), 0) + 1
    return tuple(min(k * step, size - roi) for k in range(count))


def _each(value: Any, axes: int, name: str, kinds: tuple[type, ...]) -> list[Any]:
    """A value for each axis, from one for all of them or a sequence of them."""
    several = list(value) if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str) else None
    found = several if several is not None else [value] * axes
    if len(found) != axes:
        raise InvalidArgumentError(
            f"{name} has another number of axes than the images of the model",
            expected=f"{axes} values, one for each spatial axis",
            got=repr(value),
        )
    if not all(isinstance(one, kinds) and not isinstance(one, bool) for one in found):
        raise InvalidArgumentError(f"{name} is no number, or one for each axis", got=repr(value))
    return found


def importance(roi: Ints, mode: str, sigma_scale: Any = 0.125) -> NDArray[np.float32]:
    """What each element of a window counts: 1, or a Gaussian around its middle whose sigma is a share of its size.

    Raises `InvalidArgumentError` for an unknown mode.
    """
    mode = str(getattr(mode, "value", mode))
    if mode not in MODES:
        raise InvalidArgumentError(
            f"there is no mode {mode!r}", expected=" or ".join(map(repr, MODES)), hint=hint(mode, MODES)
        )
    if mode == "constant":
        return np.ones(roi, np.float32)
    scales = _each(sigma_scale, len(roi), "sigma_scale", (numbers.Real,))
    if not all(scale > 0 for scale in scales):
        raise InvalidArgumentError("sigma_scale is a share of the size of a window, above 0", got=repr(sigma_scale))
    weights = np.ones((), np.float32)
    for length, scale in zip(roi, scales, strict=True):
        away = (np.arange(length) - (length - 1) / 2) / (length * float(scale))
        with np.errstate(over="ignore"):
            bell = np.exp(away**2 / -2).astype(np.float32)
        weights = weights[..., None] * bell
    return np.maximum(weights, max(float(weights.min()), LEAST_WEIGHT)).astype(np.float32)


def given_weights(weights: Any, roi: Ints) -> NDArray[np.float32]:
    """A map of weights that the caller has, of the size of a window; axes of length 1 before it are dropped.

    Raises `ShapeError` for another size, and `InvalidArgumentError` for weights below 0 or without end.
    """
    try:
        found = np.asarray(arrays.to_numpy(weights), np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError("roi_weight_map is no array of numbers", got=repr(weights)[:60]) from error
    if found.shape[found.ndim - len(roi) :] != roi or math.prod(found.shape) != math.prod(roi):
        raise ShapeError("roi_weight_map has another size than a window", expected=str(roi), got=str(found.shape))
    if not np.isfinite(found).all() or (found < 0).any():
        raise InvalidArgumentError("roi_weight_map has weights that are negative, infinite or no numbers")
    # Means stay what they are, and weights of any size keep their digits in float32.
    return (found / (found.max(initial=0) or 1)).astype(np.float32).reshape(roi)


def resized(weights: NDArray[np.float32], shape: Ints) -> NDArray[np.float32]:
    """The weights for an output of another scale: those of the nearest elements ("nearest-exact")."""
    for axis, (old, new) in enumerate(zip(weights.shape, shape, strict=True)):
        if old != new:
            nearest = np.floor((np.arange(new) + 0.5) * (old / new)).astype(np.intp)
            weights = weights.take(np.minimum(nearest, old - 1), axis)
    return np.ascontiguousarray(weights)


def check_padding(mode: Any, grid: Grid) -> str:
    """The name of a way to fill up.

    Raises `InvalidArgumentError` for an unknown one, and `ShapeError` where the image has not enough to reflect or to
    go round.
    """
    name = str(getattr(mode, "value", mode))
    if name not in PADDING:
        raise InvalidArgumentError(
            f"there is no padding_mode {name!r}", expected=", ".join(PADDING), hint=hint(name, list(PADDING))
        )
    for size, padded, before in zip(grid.size, grid.padded, grid.before, strict=True):
        most = {"reflect": size - 1, "circular": size}.get(name)
        if most is not None and padded - size - before > most:
            raise ShapeError(
                f"the image is too small to be filled up by padding_mode={name!r}",
                expected=f"at most {most} elements at each end of {size}",
                got=str(padded - size - before),
                hint='padding_mode="constant" or "replicate", or a smaller roi_size',
            )
    return name
