"""Functions that several loops or branches of a graph share become one for each: tf2onnx changes them in place."""

from __future__ import annotations

from typing import Any

#: What holds the name of a function that tf2onnx makes a part of the node.
PARTS = ("body", "cond", "then_branch", "else_branch")
OPS = ("While", "StatelessWhile", "If", "StatelessIf")


def unshare(graph: Any) -> None:
    """Copies functions of a GraphDef until none is used twice."""
    functions = {function.signature.name: function for function in graph.library.function}
    used: set[str] = set()
    waiting = list(graph.node)
    while waiting:
        node = waiting.pop()
        for part in PARTS if node.op in OPS else ():
            # Reading an attribute that is not there would make one.
            name = node.attr[part].func.name if part in node.attr else ""
            if name not in functions:
                continue
            function = functions[name]
            if name in used:
                function = graph.library.function.add()
                function.CopyFrom(functions[name])
                function.signature.name = _free(name, functions)
                functions[function.signature.name] = function
                node.attr[part].func.name = function.signature.name
            used.add(function.signature.name)
            waiting.extend(function.node_def)


def _free(name: str, taken: Any) -> str:
    number = 1
    while f"{name}_copy_{number}" in taken:
        number += 1
    return f"{name}_copy_{number}"
