"""The layers at the bounds of loops and conditionals, by TensorRT's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from neurenix.errors import DTypeError, InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware.tensorrt.layer import ILayer, ITensor
from neurenix.hardware.tensorrt.strict import Strict

if TYPE_CHECKING:
    from neurenix.hardware.tensorrt.graph import Definition
    from neurenix.hardware.tensorrt.layers.conditional import IIfConditional
    from neurenix.hardware.tensorrt.layers.loop import ILoop


class Block(Strict, ABC):
    """What a loop and a conditional share."""

    #: Its name, which its layer in the engine has.
    name: str

    def __init__(self, network: Definition, name: str) -> None:
        self._network = network
        self.name = name

    def _own(self, layer: ILayer) -> Any:
        layer.__dict__["_block"] = self
        return layer

    @abstractmethod
    def _reads(self) -> list[ITensor]:
        """What is read at its bounds.

        Raises `InvalidArgumentError` where something is missing.
        """


class BoundaryLayer(ILayer):
    """A layer at the bounds of a loop or conditional."""

    _block: Block

    def set_output_type(self, index: int, dtype: Any) -> NoReturn:
        """Refused with `UnsupportedError`: what crosses the bounds keeps its type."""
        raise UnsupportedError(
            "what crosses the bounds of a loop or conditional keeps its type",
            layer=self.name,
            got=str(dtype),
            hint="convert it with add_cast",
        )


class ILoopBoundaryLayer(BoundaryLayer):
    """A layer at the bounds of a loop."""

    _block: ILoop

    @property
    def loop(self) -> ILoop:
        """The loop."""
        return self._block


class ITripLimitLayer(ILoopBoundaryLayer):
    """What ends a loop."""

    @property
    def kind(self) -> Any:
        """The `TripLimit`: COUNT, or WHILE."""
        return self._properties["kind"]


class IIteratorLayer(ILoopBoundaryLayer):
    """A slice of a tensor in each iteration. Properties: axis, reverse."""


class IRecurrenceLayer(ILoopBoundaryLayer):
    """A value that each iteration gives the next one: input 0 is the first one, input 1 the next one."""

    _next: ITensor | None

    @property
    def num_inputs(self) -> int:
        """2 once the next value is known, 1 before."""
        return 1 if self.get_input(1) is None else 2

    def get_input(self, index: int) -> ITensor | None:
        """The initial value (0), or the next one (1); None where there is none."""
        return self.__dict__.get("_next") if index == 1 else super().get_input(index)

    def set_input(self, index: int, tensor: Any) -> None:
        """Says the initial value (0), from outside of the loop, or the next one (1), from inside, of its type.

        Raises `DTypeError` or `ShapeError` where the two differ, `InvalidArgumentError` for another index.
        """
        if index not in (0, 1):
            raise InvalidArgumentError(
                "a recurrence has two inputs", layer=self.name, expected="0 or 1", got=str(index)
            )
        if index == 0:
            super().set_input(index, tensor)
            return
        following, first = self._network._resolve(tensor), self._outputs[0]
        if following.dtype != first.dtype:
            raise DTypeError(
                "the next value of a recurrence is of another type than the first",
                layer=self.name,
                tensor=following.name,
                expected=str(first.dtype),
                got=str(following.dtype),
                hint="convert it with add_cast",
            )
        require_shape(self, first.symbolic_shape, following.symbolic_shape)
        self.__dict__["_next"] = following


def require_shape(layer: ILayer, have: tuple[int | str, ...], given: tuple[int | str, ...]) -> None:
    """Raises `ShapeError` where what a recurrence is given next can't have the shape of what it has."""
    if len(have) != len(given) or any(isinstance(h, int) and h != g for h, g in zip(have, given, strict=True)):
        raise ShapeError(
            "the next value of a recurrence has another shape than the first",
            layer=layer.name,
            expected=str(list(have)),
            got=str(list(given)),
            hint="begin with a value of the shape that each iteration gives",
        )


class ILoopOutputLayer(ILoopBoundaryLayer):
    """A result of a loop; `set_input(1, length)` says how many iterations are stacked. Property: axis."""

    @property
    def kind(self) -> Any:
        """The `LoopOutput`: LAST_VALUE, CONCATENATE, or REVERSE."""
        return self._properties["kind"]


class IIfConditionalBoundaryLayer(BoundaryLayer):
    """A layer at the bounds of a conditional."""

    _block: IIfConditional

    @property
    def conditional(self) -> IIfConditional:
        """The conditional."""
        return self._block


class IConditionLayer(IIfConditionalBoundaryLayer):
    """Which branch of a conditional runs."""


class IIfConditionalInputLayer(IIfConditionalBoundaryLayer):
    """What branches of a conditional read."""


class IIfConditionalOutputLayer(IIfConditionalBoundaryLayer):
    """A result of a conditional, of either branch."""
