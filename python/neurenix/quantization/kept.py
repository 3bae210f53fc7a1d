"""Which products stay in floats, so that a network in 8 bits is within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from neurenix import _native
from neurenix._native import Network
from neurenix.quantization.accuracy.graph import Graph, Product
from neurenix.quantization.compare import Batch, untimed
from neurenix.quantization.sensitivity import LayerLoss

#: So many of the products that stay in floats are tried in 8 bits again, those that multiply most first.
TRIALS = 6

#: Whether a network is within the budget with these products in floats.
Near = Callable[[Collection[str]], bool]


def multiplications(full: Network, batch: Batch, options: Mapping[str, Any]) -> dict[str, float]:
    """How much each product multiplies on a batch, by name; all the same where sizes depend on data."""
    found = list(Graph(full).products())
    copy, tensors = full.copy([product.layer.outputs[0] for product in found])
    for at, tensor in enumerate(tensors):
        copy.mark_output(tensor, str(at))
    engine = _native.Engine.build(copy, [], untimed(options))
    if engine.staged:
        return {product.name: 1.0 for product in found}
    specs = engine.specs([batch[name].shape for name, *_ in engine.inputs])
    given = {name: math.prod(shape) for (name, *_), (_, shape) in zip(engine.outputs, specs, strict=True)}
    return {product.name: _of_one(product, given[str(at)]) for at, product in enumerate(found)}


def _of_one(product: Product, given: int) -> float:
    """The multiplications of a product that gives so many elements: of a transposed convolution with strides a part of
    the weights meets each place."""
    steps = product.layer.attrs.get("strides", ()) if product.layer.op == "ConvTranspose" else ()
    return float(given / product.outputs * product.weights.size / math.prod(steps))


def fewest(losses: Sequence[LayerLoss], work: Mapping[str, float], near: Near) -> list[str] | None:
    """The products that stay in floats, so that much of the work is done in 8 bits; None where all would have to.

    Noises add up, so that as much work as they leave place for is done where the products with the most noise for a
    multiplication are left out first (the greedy rule of knapsacks). Some are within the budget without what alone
    loses most, though, whatever work that is: both orders are tried, and the better one is taken. Then those that
    multiply most are tried in 8 bits again.
    """
    noises = {loss.layer: 10 ** (-loss.decibels / 10) for loss in losses}
    alone = sorted(noises, key=lambda name: -noises[name])
    by_work = sorted(noises, key=lambda name: -noises[name] / max(work.get(name, 1.0), 1.0))
    known = once(near)

    def left(kept: Collection[str]) -> float:
        return sum(work.get(name, 1.0) for name in kept)

    if known([]):
        return []
    best = min((first_near(order, known) for order in (alone, by_work)), key=left)
    if len(best) == len(alone):
        return None
    for name in sorted(best, key=lambda name: -work.get(name, 1.0))[:TRIALS]:
        fewer = [other for other in best if other != name]
        best = fewer if known(fewer) else best
    return best


def once(near: Near) -> Near:
    """The same, which tries no products twice."""
    seen: dict[frozenset[str], bool] = {}

    def known(kept: Collection[str]) -> bool:
        key = frozenset(kept)
        if key not in seen:
            seen[key] = near(kept)
        return seen[key]

    return known


def first_near(order: Sequence[str], near: Near) -> list[str]:
    """As few of these as the budget asks for, from the front, by bisection."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if near(order[:middle]):
            high = middle
        else:
            low = middle + 1
    return list(order[:high])
