"""Integers of a graph as a tensor and what is added to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neurenix.importers.tensorflow.recurrent.reading import ADD, NoMatch, Reader, integer, need
from neurenix.importers.tensorflow.recurrent.steps import origin


@dataclass
class Number:
    """What a scalar is: an offset alone, or added to a tensor or to the extent of an axis."""

    tensor: Any
    offset: int


def number(graph: Any, tensor: str) -> Number:
    """A scalar of integers, read as far as it can be."""
    reader = Reader(graph)
    tensor = reader.root(tensor)
    node = graph.get_node_by_output(tensor)
    if node is None:
        return Number(tensor, 0)
    for read in (_constant, _sum, _cast, _extent):
        try:
            return read(reader, node)
        except NoMatch:
            continue
    return Number(tensor, 0)


def _constant(reader: Reader, node: Any) -> Number:
    value = reader.value(node.output[0])
    need(value.size == 1 and value.dtype.kind in "iu")
    return Number(None, int(value))


def _sum(reader: Reader, node: Any) -> Number:
    """A number and a constant one."""
    need(node.type in (*ADD, "Sub"))
    first, second = (number(reader.graph, name) for name in node.input)
    if second.tensor is None:
        return Number(first.tensor, first.offset + (-second.offset if node.type == "Sub" else second.offset))
    need(first.tensor is None and node.type != "Sub")
    return Number(second.tensor, first.offset + second.offset)


def _cast(reader: Reader, node: Any) -> Number:
    """A number in another dtype of integers."""
    from onnx import TensorProto

    need(node.type == "Cast")
    dtypes = [reader.graph.get_dtype(name) for name in (node.input[0], node.output[0])]
    need(all(dtype in (TensorProto.INT32, TensorProto.INT64) for dtype in dtypes))
    return number(reader.graph, node.input[0])


def _extent(reader: Reader, node: Any) -> Number:
    """An element of a shape."""
    need(node.type == "StridedSlice")
    begin, source = reader.value(node.input[1]).tolist(), reader.of(node.input[0], "Shape").input[0]
    need(len(begin) == 1 and begin[0] >= 0 and integer(node, "shrink_axis_mask") == 1)
    shape = reader.graph.get_shape(source)
    if shape is not None and len(shape) > begin[0] and shape[begin[0]] >= 0:
        return Number(None, int(shape[begin[0]]))
    return Number(origin(reader, source, begin[0]), 0)
