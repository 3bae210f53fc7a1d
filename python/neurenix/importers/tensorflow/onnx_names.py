"""An ONNX model under the names that the user knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def rename(graph: Any, names: Mapping[str, str]) -> None:
    """Gives tensors of an ONNX graph other names; what bore one of these before gets a number behind it."""
    taken = set(_names(graph))
    wanted = {old: new for old, new in names.items() if old != new}
    others = taken & set(wanted.values()) - set(wanted)
    _rename(graph, wanted | {name: _fresh(name, taken | set(wanted.values())) for name in others})


def name_dims(graph: Any, shapes: Mapping[str, Sequence[int | str]]) -> None:
    """Names the open dimensions of the inputs of a graph."""
    for port in graph.input:
        for dim, wanted in zip(port.type.tensor_type.shape.dim, shapes.get(port.name, ()), strict=False):
            if isinstance(wanted, str):
                dim.dim_param = wanted


def _fresh(name: str, taken: set[str]) -> str:
    count = 1
    while f"{name}_{count}" in taken:
        count += 1
    taken.add(f"{name}_{count}")
    return f"{name}_{count}"


def _names(graph: Any) -> Iterator[str]:
    """The names of all tensors of a graph and of those inside of its nodes."""
    for port in (*graph.input, *graph.output, *graph.initializer):
        yield port.name
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _names(attribute.g)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    for port in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        port.name = names.get(port.name, port.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, names)
