"""Sliding windows as MONAI's documentation words them, window by window in float64 on whole arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MODES: dict[str, Any] = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def gaussian(roi: Sequence[int], sigma_scale: float = 0.125) -> Array:
    """exp(-x^2 / 2 sigma^2) from the middle of a window, nowhere below the greater of its least value and 1e-3."""
    weights = np.ones(())
    for length in roi:
        x = np.arange(length) - (length - 1) / 2
        weights = np.multiply.outer(weights, np.exp(-(x**2) / (2 * (sigma_scale * length) ** 2)))
    return np.maximum(weights, max(weights.min(), 1e-3))


def slide(
    image: Array,
    roi: Sequence[int],
    predict: Callable[[Array], Array],
    overlap: Sequence[float],
    weights: Array,
    padding: str = "constant",
) -> Array:
    """The weighted mean over all windows; `predict` takes and gives batches of one."""
    size = image.shape[2:]
    pads = [((max(r - s, 0)) // 2, max(r - s, 0) - max(r - s, 0) // 2) for r, s in zip(roi, size, strict=True)]
    padded = np.pad(image, [(0, 0), (0, 0), *pads], MODES[padding])
    starts = []
    for length, r, share in zip(padded.shape[2:], roi, overlap, strict=True):
        step = r if length == r else max(int(r * (1 - share)), 1)
        # Windows at each step until one reaches the end, which is moved back into the image.
        count = next(d for d in range(length) if d * step + r >= length) + 1
        starts.append([min(d * step, length - r) for d in range(count)])
    total: Array | None = None
    for n, corner in itertools.product(range(image.shape[0]), itertools.product(*starts)):
        window = padded[(slice(n, n + 1), slice(None), *(slice(c, c + r) for c, r in zip(corner, roi, strict=True)))]
        found = predict(window).astype(np.float64)
        scale = [o / r for o, r in zip(found.shape[2:], roi, strict=True)]
        if total is None:
            whole = [int(p * z) for p, z in zip(padded.shape[2:], scale, strict=True)]
            total = np.zeros((image.shape[0], found.shape[1], *whole))
            counts = np.zeros((image.shape[0], 1, *whole))
        index = (
            n,
            slice(None),
            *(slice(int(c * z), int((c + r) * z)) for c, r, z in zip(corner, roi, scale, strict=True)),
        )
        own = weights
        for axis, (r, o) in enumerate(zip(roi, found.shape[2:], strict=True)):
            own = own.take([math.floor((i + 0.5) * r / o) for i in range(o)], axis)
        total[index] += found[0] * own
        counts[index] += own
    assert total is not None
    mean = total / counts
    kept = [slice(round(a * z), round((a + s) * z)) for (a, _), s, z in zip(pads, size, scale, strict=True)]
    return mean[(slice(None), slice(None), *kept)]
