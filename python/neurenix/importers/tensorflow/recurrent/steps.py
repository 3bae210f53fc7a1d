"""Whether a loop takes each of its items once, in order: counters from zero, and as many steps as there are items."""

from __future__ import annotations

from typing import Any

from neurenix.importers.tensorflow.recurrent.reading import NoMatch, Reader, need

#: Counter and bound: numbers of inputs of the loop; a bound may be a number itself.
Bounds = list[tuple[int, "int | str"]]


def bounds(graph: Any) -> Bounds:
    """What the condition of a loop says: each counter is less than its bound. Raises `NoMatch` for others."""
    reader = Reader(graph)
    need(len(graph.outputs) == 1)
    return _bounds(reader, graph.outputs[0])


def _bounds(reader: Reader, tensor: str) -> Bounds:
    node = reader.of(tensor, "LogicalAnd", "Less")
    if node.type == "LogicalAnd":
        return [*_bounds(reader, node.input[0]), *_bounds(reader, node.input[1])]
    counter, bound = node.input
    if reader.root(bound) in reader.graph.input_names:
        return [(reader.number(counter), reader.number(bound))]
    return [(reader.number(counter), str(int(reader.value(bound))))]


def check_all(graph: Any, loop: Any, found: Bounds, items: str, time: int) -> None:
    """Raises `NoMatch` unless the loop ends with the last item, `items` being the tensor whose first axis they are."""
    reader = Reader(graph)
    need(time in [counter for counter, _ in found])
    for counter, bound in found:
        need(int(reader.value(loop.input[counter])) == 0)
        if isinstance(bound, str):
            need(int(bound) == _extent(graph, items, 0))
        else:
            check_count(graph, loop.input[bound], items)


def check_count(graph: Any, bound: str, items: str) -> None:
    """Raises `NoMatch` unless a number is that of the items."""
    reader = Reader(graph)
    node = reader.node(bound)
    if node.is_const():
        need(int(reader.value(bound)) == _extent(graph, items, 0))
        return
    need(node.type == "StridedSlice")
    begin, source = reader.value(node.input[1]).tolist(), reader.of(node.input[0], "Shape").input[0]
    need(len(begin) == 1 and begin[0] >= 0 and node.get_attr("shrink_axis_mask").i == 1)
    need(origin(reader, source, begin[0]) == origin(reader, items, 0))


def _extent(graph: Any, tensor: str, axis: int) -> int:
    shape = graph.get_shape(tensor)
    need(shape is not None and len(shape) > axis and shape[axis] >= 0)
    return int(shape[axis])


def origin(reader: Reader, tensor: str, axis: int) -> tuple[str, int]:
    """The tensor and axis that an axis comes from, behind what only reorders."""
    while True:
        tensor = reader.root(tensor)
        node = reader.graph.get_node_by_output(tensor)
        if node is not None and node.type == "Transpose" and len(node.input) == 2:
            axis = int(reader.value(node.input[1])[axis])
        elif node is None or node.type not in ("ReverseV2", "Relu", "Tanh"):
            return tensor, axis
        tensor = node.input[0]


def same_steps(graph: Any, one: str, other: str) -> bool:
    """Whether the first axes of two tensors, such as items and their masks, may be one: no known extents differ."""
    extents = []
    for tensor in (one, other):
        try:
            extents.append(_extent(graph, tensor, 0))
        except NoMatch:
            continue
    return len(set(extents)) < 2
