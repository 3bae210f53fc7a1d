"""Signals whose sizes come with a call: the roots of unity and the triangles are computed by layers."""

from __future__ import annotations

import math

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import ShapeError
from neurenix.importers.onnx.attention import extent
from neurenix.importers.onnx.node import Node

#: A mel is so many times the logarithm of a frequency over its corner.
MEL, CORNER = 2595.0, 700.0


def one(node: Node, x: Tensor) -> Tensor:
    """One integer as an int64 of rank 0."""
    x = node.add("Cast", x, to="int64")
    return node.add("Reshape", x, node.integers([])) if len(x.shape) else x


def counted(node: Node, count: Tensor) -> Tensor:
    """0, 1, ... below a number: an int64 vector."""
    return node.add("Range", node.integers(0), count, node.integers(1))


def half(node: Node, length: Tensor) -> Tensor:
    """The bins of a real signal of a length."""
    return node.add("Add", node.add("Div", length, node.integers(2)), node.integers(1))


def transformed(node: Node, x: Tensor, length: Tensor, *, inverse: bool, onesided: bool) -> Tensor:
    """[..., elements, 1 or 2] as [..., bins, 2]: the transform along the axis before the last.

    `length` is an int64 of rank 0. A one-sided inverse takes the first half of the bins and gives real numbers,
    [..., length, 1]. What is behind the length is left out, what is missing is 0.
    """
    bins = half(node, length)
    taken, given = (bins, length) if onesided and inverse else (length, bins if onesided else length)
    x = _fitted(node, x, taken)
    cos, sin = _roots(node, taken, given, length, inverse=inverse)
    if inverse:
        share = node.add("Div", node.like(1.0, cos), node.add("Cast", length, to=cos.dtype))
        weights = _twice(node, taken, length, cos) if onesided else node.like(1.0, cos)
        cos, sin = (node.add("Mul", table, node.add("Mul", weights, share)) for table in (cos, sin))
    cos, sin = (node.add("Cast", table, to=x.dtype) for table in (cos, sin))
    parts = [node.add("Gather", x, node.integers(part), axis=len(x.shape) - 1) for part in range(int(x.shape[-1]))]
    real, imaginary = (node.add("MatMul", parts[0], table) for table in (cos, sin))
    if len(parts) == 2:
        real = node.add("Sub", real, node.add("MatMul", parts[1], sin))
        imaginary = node.add("Add", imaginary, node.add("MatMul", parts[1], cos))
    results = [real] if onesided and inverse else [real, imaginary]
    rows = [node.add("Unsqueeze", result, axes=[len(result.shape)]) for result in results]
    return node.add("Concat", *rows, axis=len(x.shape) - 1) if len(rows) > 1 else rows[0]


def _roots(node: Node, taken: Tensor, given: Tensor, length: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each element's angle in each result, float64[taken, given]."""
    rows, columns = (node.add("Unsqueeze", counted(node, n), axes=[at]) for n, at in ((taken, 1), (given, 0)))
    # Exact: the angles repeat, so the product is taken modulo the length before it is rounded.
    turns = node.add("Cast", node.add("Mod", node.add("Mul", rows, columns), length), to="float64")
    turn = node.add("Div", node.like((2 if inverse else -2) * math.pi, turns), node.add("Cast", length, to="float64"))
    angles = node.add("Mul", turns, turn)
    return node.add("Cos", angles), node.add("Sin", angles)


def _twice(node: Node, taken: Tensor, length: Tensor, like: Tensor) -> Tensor:
    """2 for the bins whose conjugates are left out, 1 for the first and, of an even length, the last: [taken, 1]."""
    bins = counted(node, taken)
    first = node.add("Equal", bins, node.integers(0))
    last = node.add("Equal", node.add("Mul", bins, node.integers(2)), length)
    weights = node.add("Where", node.add("Or", first, last), node.like(1.0, like), node.like(2.0, like))
    return node.add("Unsqueeze", weights, axes=[1])


def _fitted(node: Node, x: Tensor, count: Tensor) -> Tensor:
    """So many elements of the axis before the last, with zeros behind for those that are missing."""
    rank = len(x.shape)
    missing = node.add("Max", node.add("Sub", count, extent(node, x, -2)), node.integers(0))
    lead = [node.add("Shape", x, start=0, end=rank - 2), node.add("Shape", x, start=rank - 1, end=rank)]
    shape = node.add("Concat", lead[0], node.add("Reshape", missing, node.integers([1])), lead[1], axis=0)
    zeros = node.add("Expand", node.like(0.0, x), shape)
    ends = node.add("Reshape", count, node.integers([1]))
    whole = node.add("Concat", x, zeros, axis=rank - 2)
    return node.add("Slice", whole, node.integers([0]), ends, node.integers([rank - 2]))


def frames(node: Node, signal: Tensor, length: Tensor, step: Tensor) -> Tensor:
    """[batch, samples, parts] as [batch, frames, length, parts]."""
    behind = node.add("Sub", extent(node, signal, 1), length)
    count = node.add("Add", node.add("Div", behind, step), node.integers(1))
    starts = node.add("Unsqueeze", node.add("Mul", counted(node, count), step), axes=[1])
    places = node.add("Add", starts, node.add("Unsqueeze", counted(node, length), axes=[0]))
    return node.add("Gather", signal, places, axis=1)


def mel_weights(node: Node) -> Tensor:
    """MelWeightMatrix of inputs that a call brings, float64[bins, bands]."""
    bands, length, rate = (one(node, node[index]) for index in range(3))
    low, high = (_mel(node, node[index]) for index in (3, 4))
    places = node.add("Cast", counted(node, node.add("Add", bands, node.integers(2))), to="float64")
    # ONNX's formula divides by the number of edges, not of the steps between them.
    edges = node.add("Cast", node.add("Add", bands, node.integers(2)), to="float64")
    mels = node.add("Add", low, node.add("Mul", places, node.add("Div", node.add("Sub", high, low), edges)))
    power = node.add("Pow", node.like(10.0, mels), node.add("Div", mels, node.like(MEL, mels)))
    hertz = node.add("Mul", node.like(CORNER, mels), node.add("Sub", power, node.like(1.0, mels)))
    wide = node.add("Cast", node.add("Add", length, node.integers(1)), to="float64")
    exact = node.add("Div", node.add("Mul", wide, hertz), node.add("Cast", rate, to="float64"))
    return _triangles(node, node.add("Floor", exact), half(node, length))


def _mel(node: Node, frequency: Tensor) -> Tensor:
    """A frequency in mels, float64 of rank 0."""
    if any(dim != 1 for dim in frequency.shape):
        raise ShapeError("a frequency must be one number", got=str(list(frequency.shape)))
    x = node.add("Reshape", node.add("Cast", frequency, to="float64"), node.integers([]))
    ratio = node.add("Add", node.add("Div", x, node.like(CORNER, x)), node.like(1.0, x))
    return node.add("Mul", node.add("Log", ratio), node.like(MEL / math.log(10), x))


def _triangles(node: Node, corners: Tensor, count: Tensor) -> Tensor:
    """How far each bin is up or down the triangle of each band."""
    end = np.iinfo(np.int64).max

    def part(start: int, stop: int) -> Tensor:
        return node.add("Slice", corners, *(node.integers([value]) for value in (start, stop, 0)))

    left, middle, right = part(0, -2), part(1, -1), part(2, end)
    bins = node.add("Unsqueeze", node.add("Cast", counted(node, count), to="float64"), axes=[1])
    zero, unit = (node.like(value, corners) for value in (0.0, 1.0))

    def share(above: Tensor, below: Tensor, span: Tensor) -> Tensor:
        return node.add("Div", node.add("Sub", above, below), node.add("Max", span, unit))

    width = node.add("Sub", middle, left)
    rising = node.add("Where", node.add("Greater", width, zero), share(bins, left, width), unit)
    falling = share(right, bins, node.add("Sub", right, middle))
    rises = node.add("And", node.add("GreaterOrEqual", bins, left), node.add("LessOrEqual", bins, middle))
    falls = node.add("And", node.add("Greater", bins, middle), node.add("Less", bins, right))
    return node.add("Where", rises, rising, node.add("Where", falls, falling, zero))
