"""Assignments and prints of a graph: what no output depends on goes, such as the seeds that dropout advances."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

#: Ops that change a variable, which is their first input.
WRITES = re.compile(r"Assign\w*VariableOp|Resource(Scatter|Apply|SparseApply|StridedSliceAssign)\w*")
PRINTS = ("Print", "PrintV2")
#: Ops that read nothing of a variable that a write would change.
UNREAD = ("Identity", "NoOp", "VarIsInitializedOp", "VariableShape")
#: Ops of TensorFlow 1's loops and branches, where edges of control say what belongs to which.
FRAMES = ("Enter", "Exit", "Merge", "NextIteration", "RefEnter", "RefMerge", "RefSwitch", "Switch")
#: The attributes of ops that name functions, and the input that is the first argument of these.
CALLS = {
    "While": (("cond", "body"), 0),
    "StatelessWhile": (("cond", "body"), 0),
    "If": (("then_branch", "else_branch"), 1),
    "StatelessIf": (("then_branch", "else_branch"), 1),
    "Case": (("branches",), 1),
    "StatelessCase": (("branches",), 1),
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
}


def has_effects(graph: Any) -> bool:
    """Whether a GraphDef assigns or prints, and `prune` can tell what depends on it."""
    ops = {node.op for node in _all_nodes(graph)}
    return any(op in PRINTS or WRITES.fullmatch(op) for op in ops) and ops.isdisjoint(FRAMES)


def prune(graph: Any, outputs: Iterable[str]) -> set[str]:
    """Leaves the nodes of a GraphDef, and of its functions, that what they give is computed from, and no order of them.

    Gives the names of the variables that the outputs read and the graph changes: their order was of effect.
    """
    parts = _Parts(graph)
    used, read, written = parts.touched(graph.node, outputs)
    used |= {node.name for node in graph.node if node.op == "Placeholder"}
    _keep(graph.node, used)
    for function in graph.library.function:
        _keep(function.node_def, _used(function.node_def, function.ret.values()))
        function.control_ret.clear()
        del function.signature.control_output[:]
    return read & written


class _Parts:
    """What functions of a graph read and write, by the numbers of their arguments."""

    def __init__(self, graph: Any) -> None:
        self._functions = {function.signature.name: function for function in graph.library.function}
        self._known: dict[str, tuple[set[int], set[int]]] = {}

    def touched(self, nodes: Any, outputs: Iterable[str]) -> tuple[set[str], set[str], set[str]]:
        """Of nodes, those that the outputs are computed from, the tensors that these read, and those that are changed.

        Tensors go by the node or argument that gives them first.
        """
        used = _used(nodes, outputs)
        read, written = set[str](), set[str]()
        sources = {node.name: _node(node.input[0]) for node in nodes if node.op == "Identity" and node.input}
        for node in nodes:
            inputs = [_source(name, sources) for name in node.input if not name.startswith("^")]
            if node.op in CALLS:
                reads, writes = self._called(node)
                written.update(inputs[index] for index in writes)
                inputs = [inputs[index] for index in reads]
            elif WRITES.fullmatch(node.op):
                written.add(inputs[0])
            if node.name in used and node.op not in UNREAD:
                read.update(inputs)
        return used, read, written

    def _called(self, node: Any) -> tuple[set[int], set[int]]:
        """The inputs of a call that its functions read, and those that they change."""
        attributes, first = CALLS[node.op]
        read, written = set(range(first)), set()
        for attribute in attributes:
            value = node.attr[attribute]
            for name in [one.name for one in value.list.func] or [value.func.name]:
                reads, writes = self._arguments(name)
                read |= {first + index for index in reads}
                written |= {first + index for index in writes}
        return read, written

    def _arguments(self, name: str) -> tuple[set[int], set[int]]:
        if name not in self._known:
            self._known[name] = (set(), set())
            function = self._functions.get(name)
            if function is not None:
                _, read, written = self.touched(function.node_def, function.ret.values())
                names = [argument.name for argument in function.signature.input_arg]
                self._known[name] = (
                    {index for index, one in enumerate(names) if one in read},
                    {index for index, one in enumerate(names) if one in written},
                )
        return self._known[name]


def _used(nodes: Any, outputs: Iterable[str]) -> set[str]:
    """The nodes that the outputs are computed from."""
    inputs = {node.name: [_node(name) for name in node.input if not name.startswith("^")] for node in nodes}
    waiting, found = [_node(name) for name in outputs], set()
    while waiting:
        name = waiting.pop()
        if name in inputs and name not in found:
            found.add(name)
            waiting += inputs[name]
    return found


def _keep(nodes: Any, used: set[str]) -> None:
    kept = [node for node in nodes if node.name in used]
    for node in kept:
        data = [name for name in node.input if not name.startswith("^")]
        del node.input[:]
        node.input.extend(data)
    copies = [type(node).FromString(node.SerializeToString()) for node in kept]
    del nodes[:]
    nodes.extend(copies)


def _source(name: str, sources: dict[str, str]) -> str:
    name = _node(name)
    while name in sources:
        name = sources[name]
    return name


def _node(name: str) -> str:
    return name.partition(":")[0]


def _all_nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def
