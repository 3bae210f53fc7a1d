"""Activations."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.same import same


def clip(node: Node) -> Tensor:
    """Clip: the bounds are attributes before opset 11."""
    x = node[0]
    if node.version >= 11:
        return node.add("Clip", x, node.get(1), node.get(2))
    low, high = (node.attrs.get(name) for name in ("min", "max"))
    return node.add("Clip", x, None if low is None else node.like(low, x), None if high is None else node.like(high, x))


def over_axis(node: Node) -> Tensor:
    """Softmax and its kin: before opset 13 they work on the matrix that Flatten(axis) gives."""
    x = node[0]
    rank = len(x.shape)
    if node.version >= 13:
        return node.add(node.op, x, axis=node.attr("axis", -1))
    axis = node.attr("axis", 1)
    if axis in (-1, rank - 1):
        return node.add(node.op, x, axis=-1)
    flat = node.add("Flatten", x, axis=axis)
    return node.add("Reshape", node.add(node.op, flat, axis=-1), node.add("Shape", x), allowzero=1)


def prelu(node: Node) -> Tensor:
    """PRelu: before opset 7 the slopes belong to the channels, which ONNX's converter leaves so."""
    x, slope = node[0], node[1]
    if node.graph.was_converted and len(slope.shape) == 1 and slope.shape[0] != 1 and len(x.shape) > 1:
        slope = node.add("Reshape", slope, node.integers([-1] + [1] * (len(x.shape) - 2)))
    return node.add("PRelu", x, slope)


def swish(node: Node) -> Tensor:
    """Swish."""
    x, alpha = node[0], node.attr("alpha", 1.0)
    if alpha == 1.0:
        return node.add("Silu", x)
    return node.add("Mul", x, node.add("Sigmoid", node.add("Mul", x, node.like(alpha, x))))


RULES: dict[str, Rule] = {
    **same(
        "Celu",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "Relu",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Tanh",
        "ThresholdedRelu",
    ),
    "Clip": clip,
    "Hardmax": over_axis,
    "LogSoftmax": over_axis,
    "PRelu": prelu,
    "Softmax": over_axis,
    "Swish": swish,
}
