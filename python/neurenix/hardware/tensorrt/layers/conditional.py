"""IIfConditional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neurenix._native import Tensor
from neurenix.errors import DTypeError, InvalidArgumentError, ShapeError
from neurenix.hardware.tensorrt.control_classes import (
    Block,
    IConditionLayer,
    IIfConditionalInputLayer,
    IIfConditionalOutputLayer,
)
from neurenix.hardware.tensorrt.layer import ILayer, ITensor, Scope
from neurenix.hardware.tensorrt.layers.common import placeholder, require_scalar

if TYPE_CHECKING:
    from neurenix.hardware.tensorrt.graph import Definition


class IIfConditional(Block):
    """One of two branches, as a condition says."""

    def __init__(self, network: Definition, number: int) -> None:
        super().__init__(network, f"Conditional_{number}")
        self._condition: IConditionLayer | None = None
        self._outputs: list[IIfConditionalOutputLayer] = []

    def set_condition(self, condition: Any) -> IConditionLayer:
        """Says which branch runs, by one truth value: bool, of shape ().

        Raises `DTypeError` or `ShapeError` for another tensor, `InvalidArgumentError` where there is a condition.
        """
        if self._condition is not None:
            raise InvalidArgumentError(
                "the conditional has a condition",
                layer=self.name,
                hint="set_input(0, condition) of its condition's layer replaces it",
            )
        layer = self._network._append("Condition", [condition], {}, _condition, outputs=0)
        self._condition = self._own(layer)
        return self._condition

    def add_input(self, input: Any) -> IIfConditionalInputLayer:
        """What branches read: what depends on it runs only where a branch that needs it does."""
        layer = self._network._append("ConditionalInput", [input], {}, lambda layer, scope: [scope[0]])
        made: IIfConditionalInputLayer = self._own(layer)
        return made

    def add_output(self, true_subgraph_output: Any, false_subgraph_output: Any) -> IIfConditionalOutputLayer:
        """A result: the first tensor where the condition holds, else the second one.

        Raises `DTypeError` or `ShapeError` where they differ in type or number of dimensions. Dimensions that differ
        are dynamic ones of the result.
        """
        sides = [true_subgraph_output, false_subgraph_output]
        layer = self._network._append("ConditionalOutput", sides, {}, _output)
        self._outputs.append(self._own(layer))
        return self._outputs[-1]

    def _reads(self) -> list[ITensor]:
        if self._condition is None:
            raise InvalidArgumentError("the conditional has no condition", layer=self.name, hint="call set_condition")
        layers: list[ILayer] = [self._condition, *self._outputs]
        return [tensor for layer in layers for tensor in layer._inputs if tensor is not None]


def _condition(layer: ILayer, scope: Scope) -> list[Tensor]:
    require_scalar(scope[0], ("bool",), "the condition")
    return []


def _output(layer: ILayer, scope: Scope) -> list[Tensor]:
    holds, fails = scope[0], scope[1]
    if holds.dtype != fails.dtype:
        raise DTypeError(
            "the branches give tensors of different types",
            expected=str(holds.dtype),
            got=str(fails.dtype),
            hint="convert one of them with add_cast",
        )
    if len(holds.shape) != len(fails.shape):
        raise ShapeError(
            "the branches give tensors of different numbers of dimensions",
            expected=str(list(holds.shape)),
            got=str(list(fails.shape)),
            hint="give one of them the shape of the other with add_shuffle",
        )
    both = zip(holds.shape, fails.shape, strict=True)
    dims = [h if h == f else f"'{layer.name}.{axis}'" for axis, (h, f) in enumerate(both)]
    return [placeholder(scope.network, layer.name, holds.dtype, dims)]
