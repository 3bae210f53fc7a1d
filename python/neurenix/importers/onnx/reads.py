"""What nodes of an ONNX graph give and read, and which of them some tensors need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from neurenix.importers.onnx.check import bodies

if TYPE_CHECKING:
    import onnx


def given_by(node: onnx.NodeProto) -> list[str]:
    """The tensors that a node gives."""
    return [name for name in node.output if name]


def read_by(node: onnx.NodeProto) -> set[str]:
    """The tensors that a node reads, those of the graphs in it included."""
    names = {name for name in node.input if name}
    for graph in bodies(node):
        inside = {name for inner in graph.node for name in given_by(inner)}
        inside |= {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        outer = {name for inner in graph.node for name in read_by(inner)} | {value.name for value in graph.output}
        names |= outer - inside
    return names


def needed(nodes: Sequence[onnx.NodeProto], names: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that these tensors depend on, in their order."""
    wanted, kept = set(names), []
    for node in reversed(nodes):
        if wanted.intersection(given_by(node)):
            wanted |= read_by(node)
            kept.append(node)
    return kept[::-1]
