"""Layers that make tensors or check them, and those that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware.tensorrt import layer_enums as e
from neurenix.hardware.tensorrt.enums import as_dtype
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, ITensor, Scope
from neurenix.hardware.tensorrt.layers.common import Ints, member


def _fill(layer: ILayer, scope: Scope) -> list[Tensor]:
    if layer.operation is not e.FillOperation.LINSPACE:
        raise UnsupportedError("random numbers are not supported", got=str(layer.operation))
    dtype = as_dtype(layer.to_type)
    extents = scope.integers(0, None)
    if extents is not None:
        return [_ramp_of_extents(layer, scope, extents, dtype)]
    shape = tuple(int(d) for d in layer.shape)
    if not shape:
        raise InvalidArgumentError("a Fill has a shape", expected="extents, or set_input(0, shape)", got="()")
    if any(scope.get(i) is not None for i in (1, 2)):
        return [_ramp(layer, scope, dtype)]
    steps = np.broadcast_to(np.asarray(layer.beta, np.float64), (len(shape),))
    values = np.asarray(layer.alpha) + steps @ np.indices(shape).reshape(len(shape), -1)
    return [scope.constant(values.reshape(shape).astype(dtype))]


def _ramp_of_extents(layer: ILayer, scope: Scope, extents: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """start + step * index summed over the axes, where a tensor tells the extents."""
    (rank,) = extents.shape
    if not isinstance(rank, int):
        raise ShapeError("the shape of a Fill has a known number of extents", tensor=extents.name, got=str(rank))
    start, steps = scope.get(1), scope.get(2)
    total = scope.constant(layer.alpha, dtype) if start is None else scope.add("Cast", start, to=dtype)
    if steps is None:
        steps = scope.constant(np.broadcast_to(np.asarray(layer.beta), (rank,)).astype(dtype))
    else:
        steps = scope.add("Reshape", scope.add("Cast", steps, to=dtype), scope.constant([rank], np.int64))
    zero, one = scope.constant(0, np.int64), scope.constant(1, np.int64)
    for axis in range(rank):
        number = scope.constant(axis, np.int64)
        places = scope.add("Range", zero, scope.add("Gather", extents, number, axis=0), one)
        moved = scope.add("Mul", scope.add("Cast", places, to=dtype), scope.add("Gather", steps, number, axis=0))
        along = scope.constant([-1 if a == axis else 1 for a in range(rank)], np.int64)
        total = scope.add("Add", total, scope.add("Reshape", moved, along))
    return total


def _ramp(layer: ILayer, scope: Scope, dtype: np.dtype[Any]) -> Tensor:
    """start + step * index summed over the axes, where tensors tell the start or the steps."""
    shape = tuple(int(d) for d in layer.shape)
    start, steps = scope.get(1), scope.get(2)
    if steps is not None and tuple(steps.shape) != (len(shape),):
        raise ShapeError(
            "the steps of a Fill are one for each dimension", expected=f"[{len(shape)}]", got=str(list(steps.shape))
        )
    if start is not None and tuple(start.shape) not in ((), (1,)):
        raise ShapeError("the start of a Fill is one number", expected="[]", got=str(list(start.shape)))
    if steps is None:
        steps = scope.constant(np.broadcast_to(np.asarray(layer.beta), (len(shape),)).astype(dtype))
    places = np.moveaxis(np.indices(shape), 0, -1).astype(dtype)
    moved = scope.add("Mul", scope.constant(places), scope.add("Cast", steps, to=dtype))
    total = scope.add("ReduceSum", moved, axes=[-1], keepdims=0)
    if start is None:
        return scope.add("Add", total, scope.constant(layer.alpha, dtype))
    return scope.add("Add", total, scope.add("Cast", start, to=dtype))


class OtherLayers(Definition):
    """Layers that make tensors or check them, and those that are not there."""

    def add_fill(self, shape: Sequence[int], op: e.FillOperation, output_type: Any = np.float32) -> ILayer:
        """alpha + beta * index, for LINSPACE (beta may have a number for each dimension).

        `set_input(0, shape)`, `(1, alpha)` and `(2, beta)` take them from tensors. Properties: shape, operation, alpha,
        beta, to_type. Random numbers are refused with `UnsupportedError`.
        """
        member(op, e.FillOperation, "the operation")
        properties = {"shape": tuple(shape), "operation": op, "alpha": 0.0, "beta": 1.0, "to_type": output_type}
        # The shape of one that has none comes as an input.
        return self._append("Fill", [], properties, _fill, takes=3, late=not len(shape))

    def add_assertion(self, condition: Any, message: str) -> ILayer:
        """Checks a condition that shapes and constants determine: raises `InvalidArgumentError` where it does not hold.

        A condition that only a call tells is refused with `UnsupportedError`.
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            known = scope[0].known()
            if known is None:
                raise UnsupportedError("a condition that only a call tells can't be checked", got=layer.message)
            if not np.all(known):
                raise InvalidArgumentError(f"an assertion of the network does not hold: {layer.message}")
            return []

        return self._append("Assertion", [condition], {"message": str(message)}, emit, outputs=0)

    def add_ragged_softmax(self, input: Any, bounds: Any) -> NoReturn:
        """Refused with `UnsupportedError`."""
        raise UnsupportedError("there is no softmax over sequences of several lengths",
                               hint="mask the input with add_select, then use add_softmax")  # fmt: skip

    def add_dynamic_quantize(
        self, input: Any, axis: int, block_size: int, output_type: Any, scale_type: Any
    ) -> NoReturn:
        """Refused with `UnsupportedError`."""
        raise UnsupportedError("scales that follow the data are not supported", hint="use add_quantize with scales")

    def add_dynamic_quantize_v2(self, input: Any, block_shape: Ints, output_type: Any, scale_type: Any) -> NoReturn:
        """Refused with `UnsupportedError`."""
        raise UnsupportedError("scales that follow the data are not supported", hint="use add_quantize with scales")

    def add_kv_cache_update(self, cache: Any, update: Any, write_indices: Any, cache_mode: Any) -> NoReturn:
        """Refused with `UnsupportedError`: an output may not lie where an input does."""
        raise UnsupportedError(
            "a cache is not written in place",
            hint="give the cache as an input, join the update by add_concatenation or add_scatter, and mark the result",
        )

    def add_moe(
        self, hidden_states: Any, selected_experts_for_tokens: Any, scores_for_selected_experts: Any
    ) -> NoReturn:
        """Refused with `UnsupportedError`."""
        raise UnsupportedError(
            "there is no layer for a mixture of experts",
            hint="write the experts out with add_matrix_multiply and add_gather",
        )

    def add_dist_collective(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused with `UnsupportedError`."""
        raise UnsupportedError("an engine runs on one GPU: there are no collective operations", hint="leave them out")

    def mark_debug(self, tensor: ITensor) -> NoReturn:
        """Refused with `UnsupportedError`: mark the tensor as an output."""
        raise UnsupportedError(
            "tensors can't be watched from outside", tensor=self._resolve(tensor).name, hint="use mark_output"
        )

    def unmark_debug(self, tensor: ITensor) -> bool:
        """False: none is marked."""
        return False

    def is_debug_tensor(self, tensor: ITensor) -> bool:
        """No tensor is."""
        return False

    def mark_unfused_tensors_as_debug_tensors(self) -> NoReturn:
        """Refused with `UnsupportedError`: mark tensors as outputs."""
        raise UnsupportedError("tensors can't be watched from outside", hint="use mark_output")

    def unmark_unfused_tensors_as_debug_tensors(self) -> bool:
        """False: none is marked."""
        return False
