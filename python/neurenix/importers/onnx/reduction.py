"""Reductions over axes."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.same import same


def reduce(node: Node) -> Tensor:
    """The axes were an attribute before opset 18 (ReduceSum: 13) and are an input since."""
    flags = {name: node.attr(name, default) for name, default in (("keepdims", 1), ("noop_with_empty_axes", 0))}
    if node.has(1):
        return node.add_with(node.op, [node[0]], "axes", 1, **flags)
    return node.add(node.op, node[0], axes=node.attr("axes", []), **flags)


RULES: dict[str, Rule] = {
    **same("ArgMax", "ArgMin"),
    **{
        f"Reduce{kind}": reduce
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}
