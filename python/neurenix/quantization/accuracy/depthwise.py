"""A scale for each channel of what depthwise convolutions read: these sum no channels, and so their weights, which have
a scale for each channel anyway, take the factors back without a loss. It is SmoothQuant (see `smoothing`) with all of a
channel's range moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from neurenix import _native
from neurenix._native import Tensor
from neurenix.arrays import Array
from neurenix.quantization.accuracy.editing import Edits
from neurenix.quantization.accuracy.graph import Graph, Product
from neurenix.quantization.accuracy.smoothing import GAIN, Seen, lost, scales


class Site(NamedTuple):
    """A tensor with channels along axis 1, and the convolutions that read it, one of them depthwise."""

    tensor: Tensor
    readers: list[Product]


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


def scale(site: Site, seen: Seen, least: float | None, edits: Edits) -> bool:
    """Divides each channel of a site by its greatest magnitude, and multiplies the weights that read it, where the
    convolutions then lose less on `seen`; whether it does.

    Where the tensor's least number is known, so that its integers may have a zero point, channels too small to have one
    may stay smaller than the others.
    """
    own = scales(seen.peaks, np.ones_like(seen.peaks), 1.0)
    tried = [own] + ([] if least is None else [np.maximum(own, _smallest(own, seen, least))])
    without = sum(lost(product, seen, None, least) for product in site.readers)
    errors = [_lost(site, seen, factors, least) for factors in tried]
    at = int(np.argmin(errors))
    if errors[at] >= GAIN * without:
        return False
    first, *others = site.readers
    ones = (1,) * (len(site.tensor.shape) - 2)
    edits.multiply(first.layer, 0, (1 / tried[at]).reshape(-1, *ones), "smooth")
    for product in others:
        edits.let_read(product.layer, 0, edits.read(first.layer, 0))
    for product in site.readers:
        edits.multiply(product.layer, 1, product.factors(tried[at], True), "smoothed")
    return True


def _smallest(own: Array, seen: Seen, least: float) -> float:
    """The smallest factor by which the least number stays near enough to zero for a zero point."""
    ratio = float((seen.peaks / own).max())
    low, high = float(own.min()), float(own.max())
    for factor in np.geomspace(low, high, 33):
        if _native.integers_of(ratio, least / float(factor))[1]:
            return float(factor)
    return high


def _lost(site: Site, seen: Seen, factors: Array, least: float | None) -> float:
    scaled = None if least is None else least / float(factors.min())
    return sum(lost(product, seen, factors, scaled) for product in site.readers)
