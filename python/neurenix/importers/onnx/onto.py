"""Inputs that are broadcast to another one, which does not grow: where a symbol of theirs may be 1 in a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neurenix._native import Tensor

if TYPE_CHECKING:
    from neurenix.importers.onnx.node import Node

Inputs = Sequence[Tensor | None]
#: The extents that inputs are broadcast to: a tensor and its axis for each.
Extents = list[tuple[Tensor, int]]


def _of(x: Tensor | None) -> Extents:
    return [] if x is None else [(x, axis) for axis in range(len(x.shape))]


def _first(inputs: Inputs, attrs: Mapping[str, Any]) -> Extents:
    return _of(inputs[0])


def _product(inputs: Inputs, attrs: Mapping[str, Any]) -> Extents:
    """Those of rows and of columns; none where the layer will refuse them."""
    a, b = _of(inputs[0]), _of(inputs[1])
    if (len(a), len(b)) != (2, 2):
        return []
    return [a[-1 if attrs.get("transA") else 0], b[0 if attrs.get("transB") else -1]]


def _scores(inputs: Inputs, attrs: Mapping[str, Any]) -> Extents:
    """Those of queries and keys; none where the layer will refuse them."""
    q, k = _of(inputs[0]), _of(inputs[1])
    if (len(q), len(k)) != (4, 4):
        return []
    return [*q[:3], k[2]]


#: The first input that is broadcast, and what to.
SIDES: dict[str, tuple[int, Callable[[Inputs, Mapping[str, Any]], Extents]]] = {
    "Attention": (3, _scores),
    "Gemm": (2, _product),
    "LayerNormalization": (1, _first),
    "PRelu": (1, _first),
    "RMSNormalization": (1, _first),
}


def expanded(node: Node, op: str, inputs: Inputs, attrs: Mapping[str, Any]) -> list[Tensor | None]:
    """The inputs of a layer, with an Expand on those where another symbol stands than in what they are broadcast to.

    Layers take two symbols to be equal, but for Expand, behind which a call may have 1 for the input's. Where the two
    are equal it does nothing, and passes remove it.
    """
    found = list(inputs)
    first, extents_of = SIDES.get(op, (len(found), _first))
    for at, side in enumerate(found[first:], first):
        if side is None:
            continue
        extents = extents_of(inputs, attrs)
        extents = extents[len(extents) - len(side.shape) :]
        if len(extents) == len(side.shape) and any(_may_be_one(side, axis, of) for axis, of in enumerate(extents)):
            found[at] = node.add("Expand", side, _shape(node, side, extents))
    return found


def _may_be_one(side: Tensor, axis: int, of: tuple[Tensor, int]) -> bool:
    """Whether two symbols meet that differ."""
    own, other = side.shape[axis], of[0].shape[of[1]]
    if own == other or isinstance(own, int) or isinstance(other, int):
        return False
    symbols = side.network.symbols
    return own in symbols and other in symbols


def _shape(node: Node, side: Tensor, extents: Extents) -> Tensor:
    """The extents where symbols differ, else 1, which leaves an extent as it is."""
    one = node.integers([1])
    parts = [
        node.add("Shape", x, start=at, end=at + 1) if _may_be_one(side, axis, (x, at)) else one
        for axis, (x, at) in enumerate(extents)
    ]
    return node.add("Concat", *parts, axis=0)
