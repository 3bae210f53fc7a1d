"""Frozen graphs of TensorFlow 1: GraphDefs, and the files of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neurenix import files
from neurenix import names as naming
from neurenix.errors import FormatError, InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow import threats
from neurenix.importers.tensorflow.functions import Frozen
from neurenix.importers.tensorflow.libraries import tensorflow
from neurenix.importers.tensorflow.ports import Port
from neurenix.importers.tensorflow.request import Request

#: Ops that hold what is trained, outside of the graph.
VARIABLES = ("VarHandleOp", "Variable", "VariableV2")
#: Ops that give what comes from outside.
PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
#: Ops that nothing reads and that are no outputs.
ASIDE = ("Assert", "Const", "NoOp", *PLACEHOLDERS, "PlaceholderWithDefault")


def read(path: Path) -> Any:
    """The graph of a file.

    Raises `FileError` and `FormatError` where there is none, `UnsupportedError` for a SavedModel out of its folder.
    """
    tf = tensorflow("reading a frozen graph")
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    graph = tf.compat.v1.GraphDef()
    try:
        graph.ParseFromString(files.read(path, "the model"))
    except DecodeError as error:
        graph = None
        cause = error
    if graph is not None and graph.node and all(node.op for node in graph.node):
        return graph
    if path.name == "saved_model.pb":
        raise UnsupportedError(
            "this is the graph of a SavedModel, whose weights are in other files",
            got=str(path),
            hint=f"give its folder: {path.parent}",
        )
    raise FormatError(
        "this is no frozen graph of TensorFlow's", got=str(path), hint="a .pb file here is a binary GraphDef"
    ) from (cause if graph is None else None)


def frozen(graph: Any, request: Request) -> Frozen:
    """A graph with its inputs (by default its placeholders) and outputs (what nothing reads).

    Raises `UnsupportedError` for one that is not frozen, and `InvalidArgumentError` for names that it does not have.
    """
    threats.check_graph(graph)
    for node in graph.node:
        if node.op in VARIABLES:
            raise UnsupportedError(
                f"the graph is not frozen: it has variables ({node.op})",
                layer=node.name,
                hint="give the SavedModel's folder, or freeze it with convert_variables_to_constants_v2",
            )
    nodes = {node.name: node for node in graph.node}
    sinks = _named(request.outputs, nodes) if request.outputs else _sinks(graph)
    read = threats.behind(nodes, sinks)
    placeholders = [name for name, node in nodes.items() if node.op in PLACEHOLDERS and name in read]
    sources = _named(request.inputs, nodes) if request.inputs else placeholders
    if not sinks:
        raise InvalidArgumentError("the graph has no outputs", hint="name them: from_tensorflow(graph, outputs=[...])")
    shapes = {_tensor(name): _shape(nodes[_node(name)]) for name in sources}
    return Frozen(
        graph,
        [Port(name.removesuffix(":0"), _tensor(name)) for name in sources],
        [Port(name.removesuffix(":0"), _tensor(name)) for name in sinks],
        shapes,
        "graph",
    )


def _sinks(graph: Any) -> list[str]:
    read = {_node(name) for node in graph.node for name in node.input}
    return [node.name for node in graph.node if node.name not in read and node.op not in ASIDE]


def _named(names: Sequence[str], nodes: dict[str, Any]) -> list[str]:
    for name in names:
        if _node(name) not in nodes:
            raise InvalidArgumentError(
                f"the graph has no node {name!r}", hint=naming.hint(_node(name), nodes) or "see the names of its nodes"
            )
    return list(names)


def _node(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _shape(node: Any) -> list[int | None] | None:
    for attribute in ("shape", "_output_shapes"):
        if attribute in node.attr:
            value = node.attr[attribute]
            shape = value.shape if value.WhichOneof("value") == "shape" else value.list.shape[0]
            # TensorFlow 1 writes no dimension at all where it knows nothing.
            if not shape.unknown_rank and (shape.dim or node.op == "PlaceholderV2" or attribute == "shape"):
                return [None if dim.size < 0 else dim.size for dim in shape.dim]
    return None
