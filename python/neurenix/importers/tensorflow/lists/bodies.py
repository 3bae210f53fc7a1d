"""How the body of a loop uses the lists that it is given. It is read while its nodes are still TensorFlow's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neurenix.importers.tensorflow.lists.numbers import number
from neurenix.importers.tensorflow.recurrent.reading import ADD, NoMatch, Reader, need

#: The dtype of what tf2onnx has none for: lists and other variants.
VARIANT = 0


@dataclass
class Written:
    """A list that each step writes one element of, and nothing else uses. The index: a number of an input, and more.

    `ragged`: whether elements are rows of a ragged tensor, which tf2onnx has sequences for.
    """

    counter: int | None
    offset: int
    resize: bool
    ragged: bool


@dataclass
class Step:
    """What each step adds to a counter: one, or what the input of this number holds."""

    by: int | None


@dataclass
class Body:
    """Numbers of inputs: of lists, of those that are written, of counters, and of what each step gives on as it is."""

    lists: set[int]
    written: dict[int, Written]
    steps: dict[int, Step]
    kept: set[int]


def body(graph: Any) -> Body:
    """What a graph is as the body of a loop."""
    reader, names = Reader(graph), graph.input_names
    lists = {place for place, name in enumerate(names) if graph.get_dtype(name) == VARIANT}
    kept = {place for place in range(len(names)) if reader.kept(place)}
    found = Body(lists, {}, {}, kept)
    for place in range(len(names)):
        try:
            if place in lists:
                found.written[place] = _written(reader, place)
            else:
                found.steps[place] = _step(reader, place, kept)
        except NoMatch:
            continue
    return found


def _step(reader: Reader, place: int, kept: set[int]) -> Step:
    from onnx import TensorProto

    name = reader.graph.input_names[place]
    need(reader.graph.get_dtype(name) in (TensorProto.INT32, TensorProto.INT64))
    for one, other in reader.operands(reader.graph.outputs[place], *ADD):
        if one == name and other in reader.graph.input_names and reader.number(other) in kept:
            return Step(reader.number(other))
        if one == name and reader.node(other).is_const() and int(reader.value(other)) == 1:
            return Step(None)
    raise NoMatch


def _written(reader: Reader, place: int) -> Written:
    graph = reader.graph
    node, name = reader.of(graph.outputs[place], "TensorListSetItem"), graph.input_names[place]
    need(reader.root(node.input[0]) == name)
    need([one.name for one in users(graph, name)] == [node.name] and not users(graph, node.output[0]))
    need([reader.root(one) for one in graph.outputs].count(node.output[0]) == 1 and name not in graph.outputs)
    index = number(graph, node.input[1])
    counter = graph.input_names.index(index.tensor) if index.tensor in graph.input_names else None
    resize = node.get_attr("resize_if_index_out_of_bounds")
    ragged = node.inputs[2].type == "RaggedTensorToVariant"
    return Written(counter, index.offset, resize is not None and bool(resize.i), ragged)


def users(graph: Any, tensor: str) -> list[Any]:
    """The nodes that use a tensor, behind Identity nodes."""
    found = []
    for node in graph.find_output_consumers(tensor):
        found.extend(users(graph, node.output[0]) if node.type == "Identity" else [node])
    return found
