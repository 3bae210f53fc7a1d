"""Cross-layer equalisation (Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019,
section 4.1): what two products in a row give and read has one range for each channel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neurenix._native import Layer, Tensor
from neurenix.arrays import Array
from neurenix.quantization.accuracy.editing import Edits
from neurenix.quantization.accuracy.graph import Bias, Graph, Product

#: Ops f with f(s x) = s f(x) for s > 0, channel by channel.
HOMOGENEOUS = (
    "Abs", "AveragePool", "Dropout", "GlobalAveragePool", "GlobalMaxPool", "Identity", "LeakyRelu", "MaxPool", "Relu",
)  # fmt: skip
#: The rounds at most, and the change below which scales have settled.
ROUNDS, SETTLED = 40, 1e-3
#: A pair is scaled where that leaves less than this share of the noise that is expected.
WORTH = 0.5
#: Ranges of activations, in standard deviations.
PEAK = 4.0
#: Scales stay within this and its inverse, so that no channel leaves what float32 holds.
MOST = 1e4


class Pair(NamedTuple):
    """Two products, the second of which alone reads what the first one gives."""

    first: Product
    bias: Bias | None
    second: Product


def pairs(graph: Graph) -> list[Pair]:
    """All pairs of a network, in its order."""
    products = {product.name: product for product in graph.products()}
    found = []
    for first in products.values():
        bias = graph.bias(first)
        if bias is None and first.layer.op != "MatMul" and len(first.layer.inputs) > 2 and first.layer.inputs[2]:
            # A bias that a call computes.
            continue
        result = first.layer.outputs[0] if bias is None else bias.result
        rank = len(result.shape)
        second = _second(graph, products, result, rank - 1 if first.channel_axis == -1 else 1)
        if second is not None and second.inputs == first.outputs:
            found.append(Pair(first, bias, second))
    return found


def equalise(graph: Graph, edits: Edits) -> int:
    """Scales each channel between two products so that the greatest weight that gives it and the greatest one that
    reads it are alike, where 8 bits then lose less; what the network computes stays the same but for rounding. Gives
    how many pairs were scaled.

    In rounds over all pairs, s = sqrt(r1 / r2) for a channel with greatest weights r1 and r2: the first product's
    weights and bias are divided by s, and the second one's multiplied.
    """
    found = pairs(graph)
    weights = {p.name: p.weights.astype(np.float64) for pair in found for p in (pair.first, pair.second)}
    scales = [np.ones(pair.first.outputs) for pair in found]
    for _ in range(ROUNDS):
        moved = 0.0
        for at, (first, _, second) in enumerate(found):
            step = _step(first.peaks(weights[first.name], False), second.peaks(weights[second.name], True))
            step = np.clip(scales[at] * step, 1 / MOST, MOST) / scales[at]
            weights[first.name] *= first.factors(1 / step, False)
            weights[second.name] *= second.factors(step, True)
            scales[at] *= step
            moved = max(moved, float(np.abs(np.log(step)).max(initial=0)))
        if moved < SETTLED:
            break
    taken = [pair for pair in zip(found, scales, strict=True) if _gains(*pair)]
    for (first, bias, second), scale in taken:
        edits.multiply(first.layer, 1, first.factors(1 / scale, False), "equalised")
        edits.multiply(second.layer, 1, second.factors(scale, True), "equalised")
        if bias is not None:
            edits.multiply(bias.layer, bias.at, (1 / scale).reshape(bias.array.shape), "equalised")
    return len(taken)


def _gains(pair: Pair, scale: Array) -> bool:
    """Whether scales are worth it. The paper equalises weights that have one scale for a whole tensor; here each output
    has one, so that what matters is how 8 bits hold the activations between and what the second product reads of
    them."""
    spread = np.sqrt(_squares(pair.first))
    if pair.bias is not None:
        spread = np.hypot(spread, pair.bias.array.astype(np.float64).reshape(-1))
    weights = pair.second.weights.astype(np.float64)
    before = _noise(pair.second, weights, spread)
    return _noise(pair.second, weights * pair.second.factors(scale, True), spread / scale) < WORTH * before


def _squares(product: Product) -> Array:
    """The sum of the squares of each output's weights: its variance, where inputs have one of 1."""
    axis = 1 if product.outputs_first else 2
    squares = np.square(product.weights.astype(np.float64)).reshape(product.view)
    found: Array = squares.sum(axis=(3, 3 - axis)).reshape(-1)
    return found


def _noise(product: Product, weights: Array, spread: Array) -> float:
    """What 8 bits add to the variance of a product's results, but for a factor: its inputs deviate by `spread`, with
    one step for all of them, and its weights have a step for each output."""
    groups, first, second, _ = product.view
    inside = weights.size // (groups * first * second)
    steps = np.square(product.peaks(weights, False)).reshape(groups, -1).sum(1)
    variance = np.square(spread).reshape(groups, -1).sum(1)
    of_weights = float(inside * (steps @ variance))
    of_inputs = float(np.square(PEAK * spread.max()) * np.square(weights).sum())
    return of_weights + of_inputs


def _step(gives: Array, reads: Array) -> Array:
    """The scale of each channel; 1 where it has no weights on one side."""
    alive = (gives > 0) & (reads > 0)
    found: Array = np.sqrt(np.where(alive, gives, 1) / np.where(alive, reads, 1))
    return found


def _second(graph: Graph, products: dict[str, Product], tensor: Tensor, axis: int) -> Product | None:
    """The product behind a tensor and homogeneous ops, whose channels lie along `axis`."""
    while True:
        reader = graph.sole_reader(tensor)
        if reader is None or reader.at != 0:
            return None
        layer = reader.layer
        second = products.get(layer.name)
        if second is not None:
            return second if second.channel_axis % len(tensor.shape) == axis else None
        behind = _behind(layer, tensor, axis)
        if behind is None:
            return None
        tensor, axis = layer.outputs[0], behind


def _behind(layer: Layer, tensor: Tensor, axis: int) -> int | None:
    """Where the channels are behind a layer; None where it is not homogeneous, or mixes them."""
    if layer.op in HOMOGENEOUS:
        return axis if len(layer.outputs) == 1 else None
    shape, given = tensor.shape, layer.outputs[0].shape
    if layer.op == "Transpose":
        return int(list(layer.attrs["perm"]).index(axis))
    if layer.op == "ReduceMean":
        axes = [int(at) % len(shape) for at in layer.attrs.get("axes") or []]
        if not axes or axis in axes:
            return None
        return axis if layer.attrs.get("keepdims", 1) else axis - sum(at < axis for at in axes)
    if layer.op == "Reshape" and all(extent == 1 for extent in shape[axis + 1 :]):
        # The channels come last, but for extents of 1, before and behind.
        last = max((at for at, extent in enumerate(given) if extent != 1), default=-1)
        return last if last >= 0 and given[last] == shape[axis] else None
    return None
