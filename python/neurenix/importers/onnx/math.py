"""Arithmetic, element by element."""

from __future__ import annotations

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.same import Same, same


def chain(op: str) -> Rule:
    """An op of any number of inputs, two at a time."""

    def rule(node: Node) -> Tensor:
        if len(node) == 0:
            raise InvalidArgumentError(f"{node.op} has no inputs")
        total = node[0]
        for index in range(1, len(node)):
            total = node.add(op, total, node[index])
        return total

    return rule


def mean(node: Node) -> Tensor:
    """Mean: the sum over the count."""
    total = chain("Add")(node)
    assert isinstance(total, Tensor)
    return node.add("Div", total, node.like(len(node), total))


RULES: dict[str, Rule] = {
    **same(
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Ceil",
        "Cos",
        "Cosh",
        "CumProd",
        "CumSum",
        "Det",
        "Div",
        "Einsum",
        "Erf",
        "Exp",
        "Floor",
        "Log",
        "MatMul",
        "Mod",
        "Mul",
        "Neg",
        "Pow",
        "Reciprocal",
        "Round",
        "Sign",
        "Sin",
        "Sinh",
        "Sqrt",
        "Sub",
        "Tan",
    ),
    "Gemm": Same(),
    "Max": chain("Max"),
    "Mean": mean,
    "Min": chain("Min"),
    "Sum": chain("Add"),
}
