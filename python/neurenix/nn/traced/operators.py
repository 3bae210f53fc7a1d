"""Python's operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.nn.traced import promotion
from neurenix.nn.traced.base import Base
from neurenix.nn.traced.indexing import index

if TYPE_CHECKING:
    from neurenix.nn.traced import Traced


class Operators(Base):
    """Arithmetic, comparison, and indexing."""

    __slots__ = ()
    #: numpy leaves `array * traced` to us.
    __array_ufunc__ = None

    def __bool__(self) -> bool:
        raise InvalidArgumentError(
            "a traced tensor has no value, so Python can't branch on it",
            tensor=self.tensor.name,
            hint="use nn.functional.where, or decide by shapes and arguments",
        )

    def __len__(self) -> int:
        first = self.shape[0]
        if isinstance(first, int):
            return first
        raise ShapeError("the length of a dynamic dimension is not known", tensor=self.tensor.name, got=first)

    def __iter__(self) -> Iterator[Traced]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Traced:
        return index(self.trace.wrap(self.tensor), key if isinstance(key, tuple) else (key,))

    def _binary(self, op: str, other: Any, swapped: bool = False, **attrs: Any) -> Traced:
        first, second = self._pair(other)
        return second._add(op, first, **attrs) if swapped else first._add(op, second, **attrs)

    def _logic(self, truths: str, bits: str, other: Any) -> Traced:
        first, second = self._pair(other)
        return first._add(truths if first.dtype.kind == "b" else bits, second)

    def _quotient(self, other: Any, swapped: bool = False) -> Traced:
        """In floats, as Div of integers leaves out what is behind the point."""
        first, second = self._pair(other)
        if promotion.kind(first.dtype) < 2:
            first, second = first._as(np.float32), second._as(np.float32)
        return second._add("Div", first) if swapped else first._add("Div", second)

    def __add__(self, other: Any) -> Traced:
        return self._logic("Or", "Add", other)

    def __radd__(self, other: Any) -> Traced:
        return self._logic("Or", "Add", other)

    def __sub__(self, other: Any) -> Traced:
        return self._binary("Sub", other)

    def __rsub__(self, other: Any) -> Traced:
        return self._binary("Sub", other, True)

    def __mul__(self, other: Any) -> Traced:
        return self._logic("And", "Mul", other)

    def __rmul__(self, other: Any) -> Traced:
        return self._logic("And", "Mul", other)

    def __truediv__(self, other: Any) -> Traced:
        return self._quotient(other)

    def __rtruediv__(self, other: Any) -> Traced:
        return self._quotient(other, True)

    def __floordiv__(self, other: Any) -> Traced:
        first, second = self._pair(other)
        if promotion.kind(first.dtype) == 2:
            return first._add("Div", second)._add("Floor")
        # Div of integers leaves out what is behind the point; Mod has the divisor's sign.
        return first._add("Sub", first._add("Mod", second))._add("Div", second)

    def __mod__(self, other: Any) -> Traced:
        first, second = self._pair(other)
        if promotion.kind(first.dtype) == 2:
            return first._add("Sub", (first // second)._add("Mul", second))
        return first._add("Mod", second)

    def __pow__(self, other: Any) -> Traced:
        return self._binary("Pow", other)

    def __rpow__(self, other: Any) -> Traced:
        return self._binary("Pow", other, True)

    def __matmul__(self, other: Any) -> Traced:
        return self._add("MatMul", self._other(other))

    def __rmatmul__(self, other: Any) -> Traced:
        return self._other(other)._add("MatMul", self)

    def __neg__(self) -> Traced:
        return self._add("Neg")

    def __abs__(self) -> Traced:
        return self._add("Abs")

    def __invert__(self) -> Traced:
        return self._add("Not" if self.dtype.kind == "b" else "BitwiseNot")

    def __and__(self, other: Any) -> Traced:
        return self._logic("And", "BitwiseAnd", other)

    def __or__(self, other: Any) -> Traced:
        return self._logic("Or", "BitwiseOr", other)

    def __xor__(self, other: Any) -> Traced:
        return self._logic("Xor", "BitwiseXor", other)

    def __lt__(self, other: Any) -> Traced:
        return self._binary("Less", other)

    def __le__(self, other: Any) -> Traced:
        return self._binary("LessOrEqual", other)

    def __gt__(self, other: Any) -> Traced:
        return self._binary("Greater", other)

    def __ge__(self, other: Any) -> Traced:
        return self._binary("GreaterOrEqual", other)

    def __eq__(self, other: Any) -> Traced:  # type: ignore[override]
        return self._binary("Equal", other)

    def __ne__(self, other: Any) -> Traced:  # type: ignore[override]
        return self._binary("Equal", other)._add("Not")

    __hash__ = object.__hash__
