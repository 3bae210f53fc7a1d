"""Keras' LayerNormalization over the last axis, found before tf2onnx moves Transposes through its pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

ADD = ("Add", "AddV2")


def rewrite(graph: Any, nodes: Any) -> Any:
    """x * s + (-mean * s + beta), s = gamma * Rsqrt(variance + epsilon) => LayerNormalization."""
    for node in list(nodes):
        found = _found(graph, node) if node.type in ADD else None
        if found is not None:
            _replace(graph, node, *found)
    return graph.get_nodes()


def _found(graph: Any, node: Any) -> tuple[str, Any, Any, float] | None:
    """The input, the scale, the offset and epsilon of the layer that ends here."""
    for product, rest in _orders(node):
        scaled, shift = _given(graph, product, "Mul"), _given(graph, rest, *ADD)
        if scaled is None or shift is None:
            continue
        for moved, beta in _orders(shift):
            by_mean = _given(graph, moved, "Mul")
            offset = _value(graph, beta)
            if by_mean is None or offset is None:
                continue
            for x, factor in _orders(scaled):
                for negated, other in _orders(by_mean):
                    scale = _scale(graph, x, negated, factor) if other == factor else None
                    if scale is not None:
                        return x, scale[0], offset, scale[1]
    return None


def _scale(graph: Any, x: str, negated: str, factor: str) -> tuple[Any, float] | None:
    """The scale and epsilon, if the factor is that of x and its mean."""
    less, product = _given(graph, negated, "Neg"), _given(graph, factor, "Mul")
    mean = None if less is None else _mean(graph, less.input[0], x)
    if product is None or mean is None:
        return None
    for root, gamma in _orders(product):
        inverse, scale = _given(graph, root, "Rsqrt"), _value(graph, gamma)
        total = None if inverse is None else _given(graph, inverse.input[0], *ADD)
        if scale is None or total is None:
            continue
        for variance, small in _orders(total):
            epsilon = _value(graph, small)
            reduced = graph.get_node_by_output(variance)
            square = None if reduced is None else _given(graph, reduced.input[0], "SquaredDifference")
            if epsilon is None or epsilon.size != 1 or square is None or square.input[0] != x:
                continue
            if _root(graph, square.input[1]) == mean and _mean(graph, variance, reduced.input[0]) is not None:
                return scale, float(epsilon)
    return None


def _mean(graph: Any, tensor: str, of: str) -> str | None:
    """A tensor, if it is the mean along the last axis of another, which stays as 1."""
    tensor = _root(graph, tensor)
    node = _given(graph, tensor, "Mean")
    axes = None if node is None else _value(graph, node.input[1])
    shape = graph.get_shape(of)
    if axes is None or shape is None or node.input[0] != of or not node.get_attr_value("keep_dims", 0):
        return None
    return tensor if axes.size == 1 and int(axes.reshape(-1)[0]) in (-1, len(shape) - 1) else None


def _replace(graph: Any, node: Any, x: str, scale: Any, offset: Any, epsilon: float) -> None:
    size = graph.get_shape(x)[-1]
    if scale.size != size or offset.size != size or graph.get_dtype(x) != graph.get_dtype(node.output[0]):
        return
    dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
    consts = [
        graph.make_const(f"{node.name}/{word}", np.ascontiguousarray(array.reshape(-1))).output[0]
        for word, array in (("scale", scale), ("offset", offset))
    ]
    graph.remove_node(node.name)
    made = graph.make_node(
        "LayerNormalization", [x, *consts], outputs=node.output, name=node.name, dtypes=[dtype], shapes=[shape],
        attr={"axis": -1, "epsilon": epsilon},
    )  # fmt: skip
    made.skip_conversion = True


def _orders(node: Any) -> tuple[tuple[str, str], tuple[str, str]]:
    first, second = node.input[:2]
    return (first, second), (second, first)


def _root(graph: Any, tensor: str) -> str:
    """The tensor behind nodes that give what they get."""
    node = graph.get_node_by_output(tensor)
    while node is not None and node.type in ("Identity", "StopGradient"):
        tensor = node.input[0]
        node = graph.get_node_by_output(tensor)
    return tensor


def _given(graph: Any, tensor: str, *types: str) -> Any:
    """The node that gives a tensor, if it is of one of these types."""
    node = graph.get_node_by_output(_root(graph, tensor))
    return node if node is not None and node.type in types else None


def _value(graph: Any, tensor: str) -> Any:
    """The elements of a constant; None for what is none."""
    node = graph.get_node_by_output(_root(graph, tensor))
    return np.asarray(node.get_tensor_value(as_list=False)) if node is not None and node.is_const() else None
