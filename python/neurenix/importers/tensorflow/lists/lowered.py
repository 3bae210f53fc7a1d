"""TensorArrays of loops that were taken to pieces, or that TensorFlow 1 wrote: tf2onnx stacks what each step writes.

It is only read here whether that is right; what is not proven is refused where tf2onnx makes a loop of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neurenix.errors import UnsupportedError
from neurenix.importers.tensorflow.lists.refusals import refusal
from neurenix.importers.tensorflow.recurrent.reading import ADD, NoMatch, need

#: Nodes that give their first input on.
THROUGH = ("Identity", "Enter", "RefEnter", "Switch", "LoopCond")


def unproven(graph: Any) -> UnsupportedError | None:
    """The error about the first write of a GraphDef that may not be in order, or not fill its TensorArray."""
    reader = _Reader(graph)
    for node in graph.node:
        if node.op == "TensorArrayWriteV3":
            try:
                reader.check(node)
            except NoMatch:
                return refusal(
                    "a loop of TensorFlow 1 does not write its elements in order, each once, or that isn't proven",
                    node.name,
                    "export the model with tf.compat.v1.enable_control_flow_v2() and lower_control_flow=False",
                )
    return None


class _Reader:
    """The nodes of a GraphDef."""

    def __init__(self, graph: Any) -> None:
        self.nodes = {node.name: node for node in graph.node}

    def root(self, tensor: str) -> Any:
        """The node that gives a tensor, behind what gives its input on."""
        node = self.nodes[tensor.removeprefix("^").partition(":")[0]]
        while node.op in THROUGH:
            node = self.nodes[node.input[0].partition(":")[0]]
        return node

    def integer(self, tensor: str) -> int | None:
        """The value of a constant."""
        from tensorflow import make_ndarray

        node = self.root(tensor)
        return int(make_ndarray(node.attr["value"].tensor)) if node.op == "Const" else None

    def check(self, write: Any) -> None:
        """Raises `NoMatch` unless step i writes element i, and there are as many steps as elements."""
        counter, made = self.root(write.input[1]), self.root(write.input[0])
        need(made.op == "TensorArrayV3")
        self._check_counter(counter)
        size = self.root(made.input[0])
        for less in self._conditions(counter):
            self._check_counter(self.root(less.input[0]))
            bound = self.root(less.input[1])
            constants = self.integer(made.input[0]), self.integer(less.input[1])
            need(bound.name == size.name or (None not in constants and constants[0] == constants[1]))

    def _check_counter(self, merge: Any) -> None:
        """Raises `NoMatch` unless it counts from zero."""
        need(merge.op == "Merge" and self.integer(merge.input[0]) == 0)
        after = self.nodes[merge.input[1].partition(":")[0]]
        need(after.op == "NextIteration")
        add = self.root(after.input[0])
        need(add.op in ADD and self.root(add.input[0]).name == merge.name and self.integer(add.input[1]) == 1)

    def _conditions(self, merge: Any) -> list[Any]:
        """The comparisons that all have to hold for a further step."""
        switches = [node for node in self.nodes.values() if node.op == "Switch" and self._reads(node, merge)]
        need(bool(switches))
        found = list(self._parts(self.root(switches[0].input[1])))
        need(all(node.op == "Less" for node in found))
        return found

    def _reads(self, node: Any, merge: Any) -> bool:
        return bool(node.input[0].partition(":")[0] == merge.name)

    def _parts(self, node: Any) -> Iterator[Any]:
        if node.op == "LogicalAnd":
            for name in node.input[:2]:
                yield from self._parts(self.root(name))
        else:
            yield node
