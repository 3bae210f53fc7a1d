"""Rewrites the lists of each graph that tf2onnx converts."""

from __future__ import annotations

from typing import Any

from neurenix.errors import UnsupportedError
from neurenix.importers.tensorflow.lists import branches, loops, lowered, ops
from neurenix.importers.tensorflow.lists.bodies import VARIANT, body
from neurenix.importers.tensorflow.lists.lists import Lists

HANDLERS = {
    **ops.HANDLERS,
    "While": loops.convert,
    "StatelessWhile": loops.convert,
    "If": branches.convert,
    "StatelessIf": branches.convert,
}


class Rewriter:
    """What tf2onnx calls for each graph of a model, bodies first, and what is refused: tf2onnx catches what it raises.

    `graph`: the GraphDef of the model, which tells bodies of loops from other functions.
    """

    def __init__(self, graph: Any) -> None:
        self.refused: UnsupportedError | None = None
        self._unproven = lowered.unproven(graph)
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        self._bodies = {node.attr["body"].func.name for node in nodes if node.op in ("While", "StatelessWhile")}

    def __call__(self, graph: Any, nodes: Any) -> Any:
        """TensorLists => tensors, or one TensorList for each that a loop may write in the order of its steps."""
        # Recurrent cells that tf2onnx knows are no loops here any more, whatever they wrote to.
        if self._unproven is not None and any(node.type in ("Loop", "Scan") for node in graph.get_nodes()):
            self.refused = self.refused or self._unproven
        try:
            if _has_lists(graph):
                self._rewrite(graph)
        except UnsupportedError as error:
            self.refused = self.refused or error
        return graph.get_nodes()

    def check(self) -> None:
        """Raises the first `UnsupportedError` that there was."""
        if self.refused is not None:
            raise self.refused

    def _rewrite(self, graph: Any) -> None:
        graph.delete_unused_nodes(graph.outputs)
        found = body(graph) if graph.graph_name in self._bodies else None
        setattr(graph, loops.BODY, found)
        lists = Lists(graph, found)
        graph.topological_sort(graph.get_nodes())
        for node in list(graph.get_nodes()):
            handler = HANDLERS.get(node.type)
            if handler is not None:
                handler(lists, node)
        lists.finish()


def _has_lists(graph: Any) -> bool:
    names = [*graph.input_names, *(name for node in graph.get_nodes() for name in node.output)]
    return any(graph.get_dtype(name) == VARIANT for name in names)
