"""Layers that quantise, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware.tensorrt.enums import as_dtype
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, Scope
from neurenix.hardware.tensorrt.layers.common import rank_of


def _broadcast(layer: ILayer, scope: Scope, index: int) -> Tensor:
    """The scales or zero points, so that they broadcast: one, one for each entry of an axis, or one for each block."""
    x, given = scope[0], scope[index]
    rank = rank_of(x)
    if rank_of(given) == rank > 1:
        return _repeated(layer, scope, given)
    if rank_of(given) != 1 or given.shape[0] == 1:
        return given if rank_of(given) != 1 else scope.add("Reshape", given, scope.constant([], np.int64))
    if layer.axis < 0:
        raise UnsupportedError("the layer has several scales, and no axis", hint="set layer.axis")
    if layer.axis >= rank:
        raise InvalidArgumentError(
            "the axis of the scales is out of range", expected=f"0 to {rank - 1}", got=str(layer.axis)
        )
    shape = [1] * rank
    shape[layer.axis] = -1
    return scope.add("Reshape", given, scope.constant(shape, np.int64))


def _repeated(layer: ILayer, scope: Scope, given: Tensor) -> Tensor:
    """Numbers of blocks, each once for every place of its block: extents that divide those of the input, or 1."""
    x, blocks = scope[0], layer.block_shape
    for axis, (extent, count) in enumerate(zip(x.shape, given.shape, strict=True)):
        if count in (1, extent):
            continue
        if not isinstance(extent, int) or not isinstance(count, int) or extent % count:
            raise ShapeError(
                "the blocks of a scale do not divide its input",
                tensor=given.name,
                expected=f"1, {extent}, or a divisor of it along axis {axis}",
                got=str(list(given.shape)),
            )
        each = extent // count
        if blocks is not None and blocks[axis] not in (each, -1):
            raise ShapeError(
                "the block shape is not that of the scales",
                expected=f"{each} along axis {axis}",
                got=str(list(blocks)),
            )
        given = scope.add("Gather", given, scope.constant(np.arange(extent) // each), axis=axis)
    return given


def _zero_point(layer: ILayer, scope: Scope, dtype: np.dtype[Any]) -> Tensor | None:
    return None if scope.get(2) is None else scope.add("Cast", _broadcast(layer, scope, 2), to=dtype)


class QuantizationLayers(Definition):
    """Layers that quantise, and back."""

    def add_quantize(self, input: Any, scale: Any, output_type: Any = np.int8) -> ILayer:
        """round(input / scale) + zero point, kept in the range of `output_type` (int8, int4, fp8, ...).

        `scale` has one number, one for each entry of `axis`, or as many dimensions as the input, with a number for each
        block. `set_input(2, zero_point)` brings zero points in the scales' shape; TensorRT itself takes zeros alone.

        Properties: axis (of the scales, where there are several), to_type, block_shape.
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            to = as_dtype(layer.to_type)
            scales = scope.add("Cast", _broadcast(layer, scope, 1), to=scope[0].dtype)
            return [scope.add("QuantizeLinear", scope[0], scales, _zero_point(layer, scope, to), to=to)]

        properties = {"axis": -1, "to_type": output_type, "block_shape": None}
        return self._append("Quantize", [input, scale], properties, emit, late=True, takes=3)

    def add_dequantize(self, input: Any, scale: Any, output_type: Any = np.float32) -> ILayer:
        """(input - zero point) * scale, as `output_type`; scales and zero points as those of `add_quantize`.

        Properties: axis (of the scales, where there are several), to_type, block_shape.
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            scales = scope.add("Cast", _broadcast(layer, scope, 1), to=as_dtype(layer.to_type))
            return [scope.add("DequantizeLinear", scope[0], scales, _zero_point(layer, scope, scope[0].dtype))]

        properties = {"axis": -1, "to_type": output_type, "block_shape": None}
        return self._append("Dequantize", [input, scale], properties, emit, late=True, takes=3)
