"""A scale for each channel of what depthwise convolutions read: these sum no channels, and so their weights, which have
a scale for each channel anyway, take the factors back without a loss. It is SmoothQuant (see `smoothing`) with all of a
channel's range moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from neurenix import _native
from neurenix._native import Tensor
from neurenix.arrays import Array
from neurenix.quantization.accuracy.editing import Edits
from neurenix.quantization.accuracy.graph import Graph, Product
from neurenix.quantization.accuracy.smoothing import Seen, lost, scales

#: The range that calibration would find for numbers.
Reach = Callable[[Array], float]
#: How factors of channels follow from their greatest magnitudes.
Scaling = Callable[[Array], Array]
#: Channels are scaled where that leaves less than this share of the squared error.
WORTH = 0.7
#: How much of a channel's range is moved.
SHARES = (1.0, 0.75, 0.5)


class Site(NamedTuple):
    """A tensor with channels along axis 1, and the convolutions that read it, one of them depthwise."""

    tensor: Tensor
    readers: list[Product]


class Halves:
    """What a tensor holds on the batches, in two halves, of every other sample each: scales that are found on one are
    judged on the other."""

    def __init__(self, channels: int, rows: int) -> None:
        """`rows`: how many of a batch are kept."""
        self._count, self._rows = 0, rows
        self._random = np.random.default_rng(0)
        self._peaks = np.zeros((2, channels), np.float32)
        self._kept: tuple[list[Array], list[Array]] = ([], [])

    def add(self, batch: Array) -> None:
        """Looks at a batch, [sample, channel, ...]."""
        share = -(-self._rows // max(len(batch), 1))
        for sample in batch:
            flat, half = sample.reshape(len(sample), -1), self._count % 2
            self._peaks[half] = np.maximum(self._peaks[half], np.abs(flat).max(1, initial=0))
            self._kept[half].append(flat[:, self._random.permutation(flat.shape[1])[:share]].T)
            self._count += 1

    @property
    def peaks(self) -> Array:
        """The greatest magnitude of each channel."""
        found: Array = self._peaks.max(0)
        return found

    @property
    def halves(self) -> tuple[Seen, Seen]:
        """The greatest magnitude of each channel in each half, and rows of it, [row, channel]; of one sample alone
        twice the same."""
        first, second = (0, 1) if self._kept[1] else (0, 0)
        seen = [Seen(self._peaks[half], np.concatenate(self._kept[half])) for half in (first, second)]
        return seen[0], seen[1]


def sites(graph: Graph) -> Iterator[Site]:
    """The sites of a network, in its order."""
    found: dict[Tensor, list[Product]] = {}
    for product in graph.products():
        # What a call gives is quantized as it comes, without a layer in front.
        if product.channel_axis == 1 and product.source in graph.makers:
            found.setdefault(product.source, []).append(product)
    for tensor, readers in found.items():
        if any(_is_depthwise(product) for product in readers) and isinstance(tensor.shape[1], int):
            yield Site(tensor, readers)


def _is_depthwise(product: Product) -> bool:
    return product.view[0] > 1 and product.view[0] == product.inputs


def scale(site: Site, held: Halves, least: float | None, reach: Reach, edits: Edits) -> bool:
    """Divides each channel of a site by its greatest magnitude, or a part of it, and multiplies the weights that read
    it, where the convolutions then lose less; whether it does. `reach` tells the range that calibration would find for
    numbers: it may cut off what all of a channel's range was made room for.

    Where the tensor's least number is known, so that its integers may have a zero point, channels too small to have one
    may stay smaller than the others.
    """
    halves = held.halves
    limit = WORTH * _lost(site, halves, np.ones_like, least, reach)
    errors = [(_lost(site, halves, found, least, reach), found) for found in _tried(least)]
    error, best = min(errors, key=lambda each: each[0])
    if error >= limit:
        return False
    factors = best(held.peaks)
    first, *others = site.readers
    ones = (1,) * (len(site.tensor.shape) - 2)
    edits.multiply(first.layer, 0, (1 / factors).reshape(-1, *ones), "smooth")
    for product in others:
        edits.let_read(product.layer, 0, edits.read(first.layer, 0))
    for product in site.readers:
        edits.multiply(product.layer, 1, product.factors(factors, True), "smoothed")
    return True


def _tried(least: float | None) -> Iterator[Scaling]:
    """How factors may follow from peaks."""
    for share in SHARES:
        yield partial(_moved, share=share)
        if least is not None:
            yield partial(_with_zero_point, share=share, least=least)


def _moved(peaks: Array, share: float) -> Array:
    return scales(peaks, np.ones_like(peaks), share)


def _with_zero_point(peaks: Array, share: float, least: float) -> Array:
    """Factors, none so small that the least number is too far below zero for a zero point."""
    own = _moved(peaks, share)
    for smallest in np.geomspace(own.min(), own.max(), 33):
        found: Array = np.maximum(own, smallest)
        if _native.integers_of(float((peaks / found).max()), least / float(found.min()))[1]:
            return found
    return own


def _lost(site: Site, halves: tuple[Seen, Seen], scaling: Scaling, least: float | None, reach: Reach) -> float:
    """What is lost on each half by the scales and the range of the other one."""
    first, second = halves
    total = 0.0
    for known, other in ((first, second), (second, first)):
        factors = scaling(known.peaks)
        most = reach(np.vstack([known.rows, known.peaks]) / factors)
        scaled = None if least is None else least / float(factors.min())
        total += sum(lost(product, other, factors, scaled, most) for product in site.readers)
    return total
