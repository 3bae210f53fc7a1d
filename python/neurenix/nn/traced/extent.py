"""The extent of a dynamic dimension: its name, and a number while the network runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurenix.nn.traced import Traced
    from neurenix.nn.traced.base import Base


class Extent(str):
    """The name of a dynamic dimension. Arithmetic gives a traced number, which reshape, expand and slices take."""

    of: Base
    axis: int

    def __new__(cls, name: str, of: Base, axis: int) -> Extent:
        made = super().__new__(cls, name)
        made.of, made.axis = of, axis
        return made

    def traced(self) -> Traced:
        """The extent as an int64 scalar."""
        return self.of.trace.add("Shape", self.of.tensor, start=self.axis, end=self.axis + 1).squeeze(0)

    def __add__(self, other: Any) -> Any:
        return self.traced() + _number(other)

    def __radd__(self, other: Any) -> Any:
        return _number(other) + self.traced()

    def __sub__(self, other: Any) -> Any:
        return self.traced() - _number(other)

    def __rsub__(self, other: Any) -> Any:
        return _number(other) - self.traced()

    def __mul__(self, other: Any) -> Any:
        return self.traced() * _number(other)

    def __rmul__(self, other: Any) -> Any:
        return _number(other) * self.traced()

    def __floordiv__(self, other: Any) -> Any:
        return self.traced() // _number(other)

    def __mod__(self, other: Any) -> Any:
        return self.traced() % _number(other)


def _number(value: Any) -> Any:
    return value.traced() if isinstance(value, Extent) else value
