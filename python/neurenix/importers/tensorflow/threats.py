"""Ops that call Python or touch files: a model that has one where it would run is refused by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from neurenix.errors import UnsupportedError

#: Ops that call functions of the process that wrote the model.
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc", "NumpyFunc", "RemoteCall", "RpcCall", "TfLiteCustom")
#: Ops that read or write files, or make readers and writers of them.
FILES = (
    "ReadFile", "WriteFile", "MatchingFiles", "Save", "SaveSlices", "SaveV2", "Restore", "RestoreSlice", "RestoreV2",
    "MergeV2Checkpoints", "LoadAndRemapMatrix", "GenerateVocabRemapping", "PrintV2", "DebugIdentity", "DebugIdentityV2",
    "DebugIdentityV3", "DebugNanCount", "DebugNumericSummary", "DebugNumericSummaryV2", "CreateSummaryFileWriter",
    "CreateSummaryDbWriter", "DatasetToTFRecord", "DatasetToTFRecordV2", "SaveDataset", "SaveDatasetV2", "LoadDataset",
)  # fmt: skip
#: What other ops with files are called at the end; they are many.
FILE_ENDINGS = (
    "ReaderV2",
    "Reader",
    "LineDataset",
    "RecordDataset",
    "RecordDatasetV2",
    "RecordDatasetV3",
    "FileDataset",
)
#: Ops that read the file of a vocabulary when a table is initialised, which a SavedModel brings along.
ASSETS = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")


#: Where PrintV2 writes to, if to no file.
STREAMS = (b"", b"stdout", b"stderr", b"log(info)", b"log(warning)", b"log(error)")


def _kind(node: Any) -> str | None:
    op = node.op
    if op in PYTHON:
        return "calls Python"
    if op == "PrintV2" and ("output_stream" not in node.attr or node.attr["output_stream"].s in STREAMS):
        return None
    return "touches files" if op in FILES or op.endswith(FILE_ENDINGS) else None


def check(nodes: Iterable[Any], where: str = "") -> None:
    """Raises `UnsupportedError` for the first such op among the nodes of a graph or function."""
    for node in nodes:
        kind = _kind(node)
        if kind is not None:
            raise UnsupportedError(
                f"the model has an op that {kind}, and is not opened: {node.op}",
                layer=f"{where}{node.name}",
                hint="leave it out of what is saved: tf.py_function and tf.io run outside of the model, "
                "on what goes in or comes out",
            )


def check_graph(graph: Any) -> None:
    """The same for a GraphDef with all its functions."""
    check(graph.node)
    for function in graph.library.function:
        check(function.node_def, f"{function.signature.name}/")


def check_functions(graph: Any, names: Iterable[str]) -> None:
    """The same for functions of a GraphDef's library, and those that they call."""
    library = {function.signature.name: function for function in graph.library.function}
    for name in _reached(library, names):
        check(library[name].node_def, f"{name}/")


def check_behind(graph: Any, outputs: Iterable[str]) -> None:
    """The same for the nodes of a GraphDef that these outputs need, and the functions that they call."""
    nodes = {node.name: node for node in graph.node}
    needed = behind(nodes, outputs)
    check(nodes[name] for name in sorted(needed))
    check_functions(graph, (called for name in needed for called in _called(nodes[name])))


def behind(nodes: Mapping[str, Any], outputs: Iterable[str]) -> set[str]:
    """The names of the nodes that outputs need."""
    todo, seen = deque(map(_node, outputs)), set[str]()
    while todo:
        name = todo.popleft()
        if name not in seen and name in nodes:
            seen.add(name)
            todo.extend(map(_node, nodes[name].input))
    return seen


def _node(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def _called(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.WhichOneof("value") == "func":
            yield value.func.name
        yield from (function.name for function in value.list.func)
    yield node.op


def _reached(library: dict[str, Any], names: Iterable[str]) -> list[str]:
    todo, seen = deque(names), set[str]()
    while todo:
        name = todo.popleft()
        if name in seen or name not in library:
            continue
        seen.add(name)
        for node in library[name].node_def:
            todo.extend(_called(node))
    return sorted(seen)
