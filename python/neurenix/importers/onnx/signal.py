"""Signals: Fourier transforms are products with a matrix of roots of unity, windows are sums of cosines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.importers.onnx import signal_sizes as sizes
from neurenix.importers.onnx.attention import extent as extent_of
from neurenix.importers.onnx.node import Array, Node, Rule

#: The most elements of the matrix of a transform: 256 MiB of float32.
MOST = 1 << 26


def dft(node: Node) -> Tensor:
    """DFT: the axis is an attribute before opset 20 and an input since."""
    x, inverse, onesided = node[0], bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    given = _one(node, 2) if node.version >= 20 else int(node.attr("axis", 1))
    axis = -2 if given is None else given
    rank = len(x.shape)
    if not -rank <= axis <= rank - 1 or axis % rank == rank - 1:
        raise ShapeError(
            "the axis of a DFT is out of range", expected=f"{-rank} to {rank - 2}, but not -1", got=str(axis)
        )
    parts = _parts(x.shape[-1])
    if onesided and parts != 1 + inverse:
        raise ShapeError(
            "a one-sided DFT is of a real signal, its inverse of a complex one",
            expected=f"a last dimension of {1 + inverse}",
            got=str(parts),
        )
    order = [a for a in range(rank) if a not in (axis % rank, rank - 1)] + [axis % rank, rank - 1]
    x = node.add("Transpose", _wide(node, x), perm=order)
    extent, length = x.shape[-2], _size(node, 1)
    if isinstance(length, Tensor) or (length is None and not isinstance(extent, int)):
        out = sizes.transformed(node, x, _length(node, x, length), inverse=inverse, onesided=onesided)
        out = node.add("Transpose", out, perm=np.argsort(order).tolist())
        return _as(node, out, node[0])
    if length is None:
        length = 2 * (int(extent) - 1) if onesided and inverse else int(extent)
    if length < 1:
        raise InvalidArgumentError("the length of a DFT must be positive", got=str(length))
    taken = length // 2 + 1 if onesided and inverse else length
    x = _fitted(node, x, taken)
    table = _roots(length, parts, inverse=inverse, onesided=onesided)
    lead = node.add("Slice", node.add("Shape", x), node.integers([0]), node.integers([-2]))
    flat = node.add("Reshape", x, node.add("Concat", lead, node.integers([taken * parts]), axis=0))
    out = node.add("MatMul", flat, node.constant(table.reshape(taken * parts, -1), x.dtype))
    shape = node.add("Concat", lead, node.integers(table.shape[2:]), axis=0)
    out = node.add("Transpose", node.add("Reshape", out, shape), perm=np.argsort(order).tolist())
    return _as(node, out, node[0])


def _length(node: Node, x: Tensor, given: Tensor | int | None) -> Tensor:
    """The length of a transform along the axis before the last: as given, or by the extent."""
    if given is not None:
        return given if isinstance(given, Tensor) else node.integers(given)
    length = extent_of(node, x, -2)
    if not (node.attr("onesided", 0) and node.attr("inverse", 0)):
        return length
    return node.add("Mul", node.add("Sub", length, node.integers(1)), node.integers(2))


def stft(node: Node) -> Tensor:
    """STFT: a convolution with the roots of unity, times the window, that goes on by the step."""
    signal, window, onesided = node[0], node.get(2), bool(node.attr("onesided", 1))
    if len(signal.shape) != 3:
        raise ShapeError("the signal must be [batch, length, 1 or 2]", got=str(signal.shape))
    parts, step = _parts(signal.shape[2]), _size(node, 1)
    if onesided and parts == 2:
        raise ShapeError("a one-sided STFT is of a real signal", expected="a last dimension of 1", got="2")
    if step is None or (isinstance(step, int) and step < 1):
        raise InvalidArgumentError("the step of an STFT must be positive", got=str(step))
    given = _size(node, 3)
    width = window.shape[0] if window is not None else signal.shape[1]
    length = width if given is None else given
    if isinstance(step, Tensor) or not isinstance(length, int):
        return _framed(node, step, given)
    if window is not None and window.shape[0] != length:
        raise ShapeError("the window is not as long as a frame", expected=str(length), got=str(window.shape[0]))
    # [length, parts, bins, 2] -> one filter for each bin and part of the result.
    table = _roots(length, parts, inverse=False, onesided=onesided)
    bins = table.shape[2]
    x = _wide(node, signal)
    filters = node.constant(table.transpose(2, 3, 1, 0).reshape(2 * bins, parts, length), x.dtype)
    if window is not None:
        filters = node.add("Mul", filters, node.add("Cast", window, to=x.dtype))
    frames = node.add("Conv", node.add("Transpose", x, perm=[0, 2, 1]), filters, strides=[step])
    frames = node.add("Transpose", frames, perm=[0, 2, 1])
    lead = node.add("Slice", node.add("Shape", frames), node.integers([0]), node.integers([2]))
    out = node.add("Reshape", frames, node.add("Concat", lead, node.integers([bins, 2]), axis=0))
    return _as(node, out, signal)


def _framed(node: Node, step: Tensor | int, given: Tensor | int | None) -> Tensor:
    """An STFT whose step or frames are as long as a call says: frames first, then their transform."""
    signal, window = node[0], node.get(2)
    x = _wide(node, signal)
    if given is None:
        given = extent_of(node, signal, 1) if window is None else extent_of(node, window, 0)
    length, step = (value if isinstance(value, Tensor) else node.integers(value) for value in (given, step))
    rows = sizes.frames(node, x, length, step)
    if window is not None:
        rows = node.add("Mul", rows, node.add("Unsqueeze", node.add("Cast", window, to=x.dtype), axes=[1]))
    out = sizes.transformed(node, rows, length, inverse=False, onesided=bool(node.attr("onesided", 1)))
    return _as(node, out, signal)


def _roots(length: int, parts: int, *, inverse: bool, onesided: bool) -> Array:
    """What each part of each element adds to each part of each result: [elements, parts, results, parts].

    Parts are the real one and, perhaps, the imaginary one.
    """
    half = length // 2 + 1
    taken, given = (half, length) if onesided and inverse else (length, half if onesided else length)
    real = onesided and inverse
    if taken * parts * given * 2 > MOST:
        raise UnsupportedError(
            "a Fourier transform of this length is not supported",
            expected=f"at most {math.isqrt(MOST // (2 * parts))} elements",
            got=str(length),
        )
    # Exact: the angles repeat, so the product is taken modulo the length before it is rounded.
    angles = np.outer(np.arange(taken), np.arange(given)) % length * (2 * np.pi / length)
    cos, sin = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    table = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], 1)[:, :parts]
    if not inverse:
        return table
    table /= length
    if real:
        # The bins that are left out are the conjugates of those between the first and, of an even length, the last.
        table = table[..., :1]
        table[1 : (length + 1) // 2] *= 2
    return table


def window(*weights: float) -> Rule:
    """The rule of a window: a sum of cosines of 0, 1, ... turns over its length."""

    def rule(node: Node) -> Tensor:
        from neurenix.importers.onnx.graph import dtype_of

        size = node[0]
        zero, one = (node.like(v, size) for v in (0, 1))
        if len(size.shape) == 1:
            size = node.add("Squeeze", size, axes=[0])
        # Under a name of its own, which names its extent too where the size depends on data.
        count = node.graph.network.add_layer("Range", [zero, size, one], {}, f"{node.name}.places")[0]
        places = node.add("Cast", count, to="float64")
        length = node.add("Cast", size if node.attr("periodic", 1) else node.add("Sub", size, one), to="float64")
        turn = node.add("Div", node.add("Mul", places, node.like(2 * math.pi, places)), length)
        total = node.like(weights[0], places)
        for turns, weight in enumerate(weights[1:], 1):
            cosine = node.add("Cos", node.add("Mul", turn, node.like(turns, turn)))
            total = node.add("Add", total, node.add("Mul", cosine, node.like(weight, cosine)))
        return node.add("Cast", total, to=dtype_of(node.attr("output_datatype", 1)))

    return rule


def mel_weight_matrix(node: Node) -> Tensor:
    """MelWeightMatrix: triangles over the bins of a spectrum, a constant where all inputs are."""
    from neurenix.importers.onnx.graph import dtype_of

    bands, length, rate = (_size(node, i) for i in range(3))
    edges = [node.array(i) for i in (3, 4)]
    if (
        not (isinstance(bands, int) and isinstance(length, int) and isinstance(rate, int))
        or edges[0] is None
        or edges[1] is None
    ):
        return node.add("Cast", sizes.mel_weights(node), to=dtype_of(node.attr("output_datatype", 1)))
    low, high = (2595 * math.log10(1 + float(edge.reshape(-1)[0]) / 700) for edge in edges if edge is not None)
    # ONNX's formula divides by the number of edges, not of the steps between them.
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    corners = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    bins = np.arange(length // 2 + 1)[:, None]
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    rising = np.where(middle > left, (bins - left) / np.maximum(middle - left, 1), 1.0)
    falling = (right - bins) / np.maximum(right - middle, 1)
    rises, falls = (bins >= left) & (bins <= middle), (bins > middle) & (bins < right)
    table = np.where(rises, rising, np.where(falls, falling, 0.0))
    return node.constant(table, dtype_of(node.attr("output_datatype", 1)))


def _one(node: Node, index: int) -> int | None:
    """One integer that must be known; None when it is left out."""
    given = node.ints(index)
    if given is None:
        return None
    if len(given) != 1:
        raise ShapeError(f"input {index} must be one integer", got=str(given))
    return given[0]


def _size(node: Node, index: int) -> Tensor | int | None:
    """One integer; a tensor of it where only a call tells it, None when it is left out."""
    if node.has(index) and node.known(index) is None:
        if any(dim != 1 for dim in node[index].shape):
            raise ShapeError(f"input {index} must be one integer", got=str(list(node[index].shape)))
        return sizes.one(node, node[index])
    return _one(node, index)


def _parts(extent: int | str) -> int:
    if extent not in (1, 2):
        raise ShapeError("the last dimension holds the real and the imaginary part", expected="1 or 2", got=str(extent))
    return int(extent)


def _wide(node: Node, x: Tensor) -> Tensor:
    """The same in float32, where the dtype is a 16-bit one."""
    return x if str(x.dtype) in ("float32", "float64") else node.add("Cast", x, to="float32")


def _as(node: Node, x: Tensor, like: Tensor) -> Tensor:
    return x if x.dtype == like.dtype else node.add("Cast", x, to=like.dtype)


def _fitted(node: Node, x: Tensor, count: int) -> Tensor:
    """The first `count` elements of the axis before the last, or as many zeros behind as are missing."""
    extent: int | str = x.shape[-2]
    if extent == count:
        return x
    if not isinstance(extent, int) or extent < count:
        missing = count - extent if isinstance(extent, int) else count
        pads: Sequence[int] = [0] * (2 * len(x.shape) - 2) + [missing, 0]
        x = node.add("Pad", x, node.integers(pads), node.like(0, x))
    return node.add("Slice", x, node.integers([0]), node.integers([count]), node.integers([-2]))


RULES: dict[str, Rule] = {
    "BlackmanWindow": window(0.42, -0.5, 0.08),
    "DFT": dft,
    "HammingWindow": window(25 / 46, -21 / 46),
    "HannWindow": window(0.5, -0.5),
    "MelWeightMatrix": mel_weight_matrix,
    "STFT": stft,
}
