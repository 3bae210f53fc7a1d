"""ILoop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.control_classes import (
    Block,
    IIteratorLayer,
    ILoopOutputLayer,
    IRecurrenceLayer,
    ITripLimitLayer,
)
from neurenix.hardware.tensorrt.layer import ILayer, ITensor, Scope
from neurenix.hardware.tensorrt.layer_enums import LoopOutput, TripLimit
from neurenix.hardware.tensorrt.layers.common import member, placeholder, require_scalar

if TYPE_CHECKING:
    from neurenix.hardware.tensorrt.graph import Definition

#: The types that a limit may have.
_LIMIT_TYPES = {TripLimit.COUNT: ("int32", "int64"), TripLimit.WHILE: ("bool",)}


class ILoop(Block):
    """A loop: layers that run again and again."""

    def __init__(self, network: Definition, number: int) -> None:
        super().__init__(network, f"Loop_{number}")
        self._limits: dict[TripLimit, ITripLimitLayer] = {}
        self._recurrences: list[IRecurrenceLayer] = []
        self._iterators: list[IIteratorLayer] = []
        self._outputs: list[ILoopOutputLayer] = []

    def add_trip_limit(self, tensor: Any, kind: TripLimit) -> ITripLimitLayer:
        """What ends the loop; there may be one limit of each kind, and the first one that is reached ends it.

        COUNT: the number of iterations, int32 or int64 of shape (), from outside. WHILE: a bool of shape () from
        inside, read before each iteration. Raises `DTypeError` or `ShapeError` for another tensor,
        `InvalidArgumentError` for a second limit of a kind.
        """
        member(kind, TripLimit, "the kind")
        if kind in self._limits:
            raise InvalidArgumentError(
                f"the loop has a limit of kind {kind.name}",
                layer=self.name,
                hint="set_input(0, tensor) of its layer replaces it",
            )
        layer = self._network._append("TripLimit", [tensor], {"kind": kind}, _limit, outputs=0)
        self._limits[kind] = self._own(layer)
        return self._limits[kind]

    def add_recurrence(self, initial_value: Any) -> IRecurrenceLayer:
        """A value that each iteration gives the next one: `set_input(1, next)` closes it.

        Its output is `initial_value` in the first iteration, which comes from outside.
        """
        layer = self._network._append("Recurrence", [initial_value], {}, _recurrence)
        self._recurrences.append(self._own(layer))
        return self._recurrences[-1]

    def add_iterator(self, tensor: Any, axis: int = 0, reverse: bool = False) -> IIteratorLayer:
        """Slice i of a tensor along an axis, which goes away, in iteration i; counted from the end if `reverse`.

        It does not end the loop: the tensor has at least as many slices as there are iterations. Properties: axis,
        reverse. Raises `InvalidArgumentError` for an axis that the tensor does not have.
        """
        properties = {"axis": int(axis), "reverse": bool(reverse)}
        layer = self._network._append("Iterator", [tensor], properties, _iterator)
        self._iterators.append(self._own(layer))
        return self._iterators[-1]

    def add_loop_output(self, tensor: Any, kind: LoopOutput, axis: int = 0) -> ILoopOutputLayer:
        """A result of the loop.

        LAST_VALUE: what a recurrence is after the last iteration. CONCATENATE: the values of a tensor in all
        iterations, stacked along a new axis whose extent, int32 or int64 of shape (), `set_input(1, length)` says.
        REVERSE: the same from the last to the first. Where there are fewer iterations than that, zeros stand in their
        place; those beyond it are left out. Properties: axis.

        Raises `InvalidArgumentError` for an axis that the result does not have, and for LAST_VALUE of what is no
        recurrence of the loop.
        """
        member(kind, LoopOutput, "the kind")
        source = self._network._resolve(tensor)
        if kind is LoopOutput.LAST_VALUE and source._layer not in self._recurrences:
            raise InvalidArgumentError(
                "a last value is that of a recurrence of the loop",
                layer=self.name,
                tensor=source.name,
                hint="add a recurrence whose next value is the tensor",
            )
        layer = self._network._append("LoopOutput", [source], {"kind": kind, "axis": int(axis)}, _output, takes=2)
        self._outputs.append(self._own(layer))
        return self._outputs[-1]

    def _reads(self) -> list[ITensor]:
        if not self._limits:
            raise InvalidArgumentError("the loop never ends", layer=self.name, hint="call add_trip_limit")
        for layer in self._recurrences:
            if layer.get_input(1) is None:
                raise InvalidArgumentError(
                    "the recurrence has no next value", layer=layer.name, hint="call set_input(1, tensor)"
                )
        for output in self._outputs:
            if output.kind is not LoopOutput.LAST_VALUE and output.get_input(1) is None:
                raise InvalidArgumentError(
                    "the output of the loop has no length", layer=output.name, hint="call set_input(1, length)"
                )
        layers = [*self._limits.values(), *self._recurrences, *self._iterators, *self._outputs]
        given = [layer.get_input(index) for layer in layers for index in range(layer.num_inputs)]
        return [tensor for tensor in given if tensor is not None]


def _limit(layer: ILayer, scope: Scope) -> list[Tensor]:
    require_scalar(scope[0], _LIMIT_TYPES[layer.kind], "the limit of a loop")
    return []


def _recurrence(layer: ILayer, scope: Scope) -> list[Tensor]:
    return [placeholder(scope.network, layer.name, scope[0].dtype, scope[0].shape)]


def _iterator(layer: ILayer, scope: Scope) -> list[Tensor]:
    dims = list(scope[0].shape)
    _check_axis(layer, len(dims))
    dims.pop(layer.axis)
    return [placeholder(scope.network, layer.name, scope[0].dtype, dims)]


def _output(layer: ILayer, scope: Scope) -> list[Tensor]:
    dims = list(scope[0].shape)
    if layer.kind is not LoopOutput.LAST_VALUE:
        _check_axis(layer, len(dims) + 1)
        dims.insert(layer.axis, _length(layer, scope))
    return [placeholder(scope.network, layer.name, scope[0].dtype, dims)]


def _length(layer: ILayer, scope: Scope) -> int | str:
    """How many values a result stacks, as far as it is known."""
    length, unknown = scope.get(1), f"'{layer.name}.length'"
    if length is None:
        return unknown
    require_scalar(length, _LIMIT_TYPES[TripLimit.COUNT], "the length of what a loop gives")
    known = length.known()
    if known is not None:
        return int(known)
    return length.value[0] if length.value else unknown


def _check_axis(layer: ILayer, rank: int) -> None:
    if not 0 <= layer.axis < rank:
        raise InvalidArgumentError("there is no such axis", expected=f"0 to {rank - 1}", got=str(layer.axis))
