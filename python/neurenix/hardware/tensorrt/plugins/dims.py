"""Shapes that a plugin computes with: TensorRT's dimension expressions over ours."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import numpy as np

from neurenix._native import Dim
from neurenix.errors import InvalidArgumentError, UnsupportedError

#: The extent of a dimension: a number, or an expression of sizes that calls tell.
Extent = int | Dim


class DimensionOperation(enum.Enum):
    """What is done with two dimensions."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    EQUAL = 5
    LESS = 6
    FLOOR_DIV = 7
    CEIL_DIV = 8


class IDimensionExpr:
    """A dimension: a constant, or an expression."""

    def __init__(self, value: Extent) -> None:
        self.value = value

    def is_constant(self) -> bool:
        """Whether it is a number."""
        return isinstance(self.value, int)

    def get_constant_value(self) -> int:
        """The number; TensorRT's least integer where it is none."""
        return self.value if isinstance(self.value, int) else -(2**31)

    def is_size_tensor(self) -> bool:
        """Whether the data tell it: never, here."""
        return False

    def __repr__(self) -> str:
        return f"IDimensionExpr({self.value})"


class DimsExprs(list[Any]):
    """The dimensions of a tensor; out of another one, of expressions, or of a number of dimensions."""

    def __init__(self, dims: Iterable[Any] | int = ()) -> None:
        super().__init__([IDimensionExpr(0)] * dims if isinstance(dims, int) else dims)


class IExprBuilder:
    """Makes expressions."""

    def constant(self, value: int) -> IDimensionExpr:
        """A number."""
        return IDimensionExpr(int(value))

    def operation(self, op: DimensionOperation, first: IDimensionExpr, second: IDimensionExpr) -> IDimensionExpr:
        """An operation on two dimensions. EQUAL and LESS are decided, so they take numbers alone."""
        return IDimensionExpr(_apply(op, extent(first), extent(second)))

    def declare_size_tensor(self, output_index: int, opt: IDimensionExpr, upper: IDimensionExpr) -> IDimensionExpr:
        """Raises `UnsupportedError`: the sizes of a plugin's outputs do not depend on data here."""
        raise UnsupportedError(
            "a plugin's output whose size depends on data is not supported",
            hint="give an output of the greatest size, and a second one with the count",
        )


def _apply(op: DimensionOperation, a: Extent, b: Extent) -> Extent:
    if op is DimensionOperation.SUM:
        return a + b
    if op is DimensionOperation.SUB:
        return a - b
    if op is DimensionOperation.PROD:
        return a * b
    if op in (DimensionOperation.FLOOR_DIV, DimensionOperation.CEIL_DIV):
        if isinstance(b, int) and b <= 0:
            raise InvalidArgumentError("a dimension is divided by what is not above zero", got=str(b))
        return a // b if op is DimensionOperation.FLOOR_DIV else -(-a // b) if isinstance(a, int) else a.ceildiv(b)
    if isinstance(a, int) and isinstance(b, int):
        numbers = {
            DimensionOperation.MAX: max(a, b),
            DimensionOperation.MIN: min(a, b),
            DimensionOperation.EQUAL: int(a == b),
            DimensionOperation.LESS: int(a < b),
        }
        return numbers[op]
    left, right = (a, b) if isinstance(a, Dim) else (b, a)
    if isinstance(left, Dim) and op is DimensionOperation.MAX:
        return left.maximum(right)
    if isinstance(left, Dim) and op is DimensionOperation.MIN:
        return left.minimum(right)
    raise UnsupportedError(f"{op.name} of dimensions that only a call tells is not supported", got=f"{a} and {b}")


def extent(value: Any) -> Extent:
    """The extent of a dimension that a plugin gives: an int, a Dim, or an expression of TensorRT's kind.

    Raises `InvalidArgumentError` for anything else.
    """
    if isinstance(value, IDimensionExpr):
        return value.value
    if isinstance(value, Dim):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise InvalidArgumentError(
        "a dimension is neither an integer nor an expression",
        got=repr(value),
        hint="divide with //, which gives integers",
    )


def expressions(shape: Iterable[Extent]) -> DimsExprs:
    """A shape in TensorRT's expressions."""
    return DimsExprs(IDimensionExpr(value) for value in shape)
