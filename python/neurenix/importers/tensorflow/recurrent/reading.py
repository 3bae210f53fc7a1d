"""Reads a graph of tf2onnx's backwards; whatever differs from what is looked for ends the reading."""

from __future__ import annotations

from typing import Any

ADD = ("Add", "AddV2")


class NoMatch(Exception):
    """The graph is not what is looked for."""


def need(condition: bool) -> None:
    """Raises `NoMatch` unless the condition holds."""
    if not condition:
        raise NoMatch


def integer(node: Any, name: str, default: int = 0) -> int:
    """An attribute of a node."""
    attribute = node.get_attr(name)
    return default if attribute is None else int(attribute.i)


class Reader:
    """The tensors of a graph, and what gives them."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def root(self, tensor: str) -> str:
        """The tensor behind Identity nodes."""
        node = self.graph.get_node_by_output(tensor)
        while node is not None and node.type == "Identity":
            tensor = node.input[0]
            node = self.graph.get_node_by_output(tensor)
        return tensor

    def node(self, tensor: str) -> Any:
        """The node behind Identity nodes that gives a tensor."""
        node = self.graph.get_node_by_output(self.root(tensor))
        need(node is not None)
        return node

    def of(self, tensor: str, *types: str) -> Any:
        """That node, which has to be of one of these types."""
        node = self.node(tensor)
        need(node.type in types)
        return node

    def operands(self, tensor: str, *types: str) -> tuple[tuple[str, str], tuple[str, str]]:
        """Both orders of the two inputs of a node of these types, behind Identity nodes."""
        first, second = (self.root(name) for name in self.of(tensor, *types).input[:2])
        return (first, second), (second, first)

    def value(self, tensor: str) -> Any:
        """The elements of a constant."""
        node = self.node(tensor)
        need(node.is_const())
        return node.get_tensor_value(as_list=False)

    def number(self, tensor: str) -> int:
        """The number of an input of the graph."""
        need(self.root(tensor) in self.graph.input_names)
        return int(self.graph.input_names.index(self.root(tensor)))

    def kept(self, number: int) -> bool:
        """Whether the body of a loop gives this input on as it is."""
        return bool(self.root(self.graph.outputs[number]) == self.graph.input_names[number])

    def counts(self, number: int) -> bool:
        """Whether the body of a loop adds one to this input."""
        name = self.graph.input_names[number]
        try:
            orders = self.operands(self.graph.outputs[number], *ADD)
            return any(one == name and float(self.value(other)) == 1 for one, other in orders if self._const(other))
        except NoMatch:
            return False

    def _const(self, tensor: str) -> bool:
        node = self.graph.get_node_by_output(tensor)
        return node is not None and node.is_const()
