"""Random numbers: refused, unless the caller says by a seed which numbers they are.

ONNX does not say which numbers a seed gives. Here they are drawn once, when the model is read, and stay the same in
every call: 64-bit words of the Philox generator, whose key is the caller's seed and a checksum of what names the node.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx.node import Array, Node, Rule
from neurenix.importers.onnx.weights import dtype_of

if TYPE_CHECKING:
    from neurenix.importers.onnx.graph import Graph

#: The places of a double between 0 and 1.
DIGITS = 53


def uniform(node: Node) -> Tensor:
    """RandomUniform and RandomUniformLike: from `low` to `high`."""
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return _constant(node, low + (high - low) * _numbers(node, _shape(node)))


def normal(node: Node) -> Tensor:
    """RandomNormal and RandomNormalLike: by the transform of Box and Muller."""
    shape = _shape(node)
    radius, angle = _numbers(node, [2, *shape])
    values = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)
    return _constant(node, node.attr("mean", 0.0) + node.attr("scale", 1.0) * values)


def bernoulli(node: Node) -> Tensor:
    """Bernoulli: whether a number from 0 to 1 is below the input."""
    drawn = node.constant(_numbers(node, _shape(node)), np.float64)
    truths = node.add("Less", drawn, node.add("Cast", node[0], to="float64"))
    return node.add("Cast", truths, to=_dtype(node))


def multinomial(node: Node) -> Tensor:
    """Multinomial: how many sums of the probabilities, which the input gives as logarithms, a number reaches."""
    count = node.attr("sample_size", 1)
    batch, classes = _shape(node)
    weights = node.add("Softmax", node.add("Cast", node[0], to="float64"), axis=-1)
    sums = node.add("Unsqueeze", node.add("CumSum", weights, node.integers(1)), axes=[1])
    drawn = node.constant(_numbers(node, [batch, count, 1]), np.float64)
    reached = node.add("Cast", node.add("GreaterOrEqual", drawn, sums), to="int64")
    places = node.add("ReduceSum", reached, axes=[2], keepdims=0)
    # The last sum may be less than 1 by its rounding.
    return node.add("Cast", node.add("Min", places, node.integers(classes - 1)), to=_dtype(node, np.int32))


def _shape(node: Node) -> list[int]:
    """The shape of the attribute, or of the input."""
    shape = list(node[0].shape) if len(node) else [int(extent) for extent in node.need("shape")]
    if any(isinstance(extent, str) for extent in shape):
        raise UnsupportedError(
            "random numbers of a shape that only a call knows are not supported",
            got=str(shape),
            hint="fix the shape: from_onnx(model, input_shapes={name: shape}, seed=0)",
        )
    if node.op == "Multinomial" and (len(shape) != 2 or shape[1] == 0):
        raise InvalidArgumentError("Multinomial wants [batch, classes]", got=str(shape))
    return [int(extent) for extent in shape]


def _dtype(node: Node, default: Any = np.float32) -> np.dtype[Any]:
    """The dtype of the attribute, else of the input, else ONNX's own."""
    if "dtype" in node.attrs:
        return dtype_of(node.attrs["dtype"])
    return np.dtype(default) if node.op == "Multinomial" or not len(node) else node[0].dtype


def _constant(node: Node, values: Array) -> Tensor:
    return node.constant(values.astype(_dtype(node)))


def _numbers(node: Node, shape: list[int]) -> Array:
    """Numbers from 0 to 1, without 1. Raises `UnsupportedError` where no seed, or a Loop, leaves them open."""
    if node.graph.seed is None or _repeats(node.graph):
        raise UnsupportedError(
            f"{node.op} makes random numbers, and ONNX does not say which",
            expected="a model whose outputs its inputs determine",
            got="a node that a Loop, a Scan or an If holds" if node.graph.seed is not None else None,
            hint="make the random numbers outside, and give them to the model as an input; or take the same ones in "
            "each call, optimize_model(nx.importers.from_onnx(model, seed=0)): that goes outside of loops",
        )
    own = node.attrs.get("seed")
    name = f"seed {own!r}" if own is not None else f"node {node.name}"
    key = [node.graph.seed, zlib.crc32(name.encode())]
    words = np.random.Philox(key=np.asarray(key, np.uint64)).random_raw(math.prod(shape))
    numbers: Array = (np.asarray(words, np.uint64) >> np.uint64(64 - DIGITS)).reshape(shape) * 2.0**-DIGITS
    return numbers


def _repeats(graph: Graph) -> bool:
    """Whether the graph belongs to a network that a layer holds, and may run several times in a call."""
    while graph.around is not None:
        if graph.around.network is not graph.network:
            return True
        graph = graph.around
    return False


RULES: dict[str, Rule] = {
    "Bernoulli": bernoulli,
    "Multinomial": multinomial,
    "RandomNormal": normal,
    "RandomNormalLike": normal,
    "RandomUniform": uniform,
    "RandomUniformLike": uniform,
}
