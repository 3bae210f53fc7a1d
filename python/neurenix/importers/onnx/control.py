"""Control flow: an If whose condition is known when the model is imported."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.node import Node, Rule


def if_(node: Node) -> list[Tensor]:
    """If: the branch that the constant condition chooses takes its place."""
    condition = node.array(0)
    if condition is None:
        raise UnsupportedError("the condition of an If depends on the data", expected="a constant condition")
    branch = node.need("then_branch" if condition.reshape(-1)[0] else "else_branch")
    node.graph.add_initializers(branch.initializer)
    node.graph.add_nodes(branch.node)
    return [node.graph.tensor(output.name) for output in branch.output]


RULES: dict[str, Rule] = {"If": if_}
