"""Layers that quantise, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.hardware.tensorrt.enums import as_dtype
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, Scope
from neurenix.hardware.tensorrt.layers.common import rank_of


def _scale(layer: ILayer, scope: Scope) -> Tensor:
    """The scales, so that they broadcast: one, one for each entry of an axis, or one for each block."""
    x, scale = scope[0], scope[1]
    if rank_of(scale) != 1 or scale.shape[0] == 1:
        return scale if rank_of(scale) != 1 else scope.add("Reshape", scale, scope.constant([], np.int64))
    if layer.axis < 0:
        raise UnsupportedError("the layer has several scales, and no axis", hint="set layer.axis")
    shape = [1] * rank_of(x)
    shape[layer.axis] = -1
    return scope.add("Reshape", scale, scope.constant(shape, np.int64))


class QuantizationLayers(Definition):
    """Layers that quantise, and back."""

    def add_quantize(self, input: Any, scale: Any, output_type: Any = np.int8) -> ILayer:
        """round(input / scale), kept in the range of `output_type` (int8, int4, fp8, ...).

        Properties: axis (of the scales, where there are several), to_type.
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            scales = scope.add("Cast", _scale(layer, scope), to=scope[0].dtype)
            return [scope.add("QuantizeLinear", scope[0], scales, to=as_dtype(layer.to_type))]

        return self._append("Quantize", [input, scale], {"axis": -1, "to_type": output_type}, emit, late=True)

    def add_dequantize(self, input: Any, scale: Any, output_type: Any = np.float32) -> ILayer:
        """input * scale, as `output_type`. Properties: axis (of the scales, where there are several), to_type."""

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            scales = scope.add("Cast", _scale(layer, scope), to=as_dtype(layer.to_type))
            return [scope.add("DequantizeLinear", scope[0], scales)]

        return self._append("Dequantize", [input, scale], {"axis": -1, "to_type": output_type}, emit, late=True)
