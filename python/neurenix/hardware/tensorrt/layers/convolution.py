"""Layers that slide a window: convolution, pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix import random
from neurenix._native import Tensor
from neurenix.errors import ShapeError
from neurenix.hardware.tensorrt import layer_enums as e
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, Scope
from neurenix.hardware.tensorrt.layers.common import Ints, member, rank_of, spread
from neurenix.hardware.tensorrt.weights import weights as weights_of
from neurenix.log import LOG


def _window(layer: ILayer, rank: int) -> dict[str, Any]:
    """Strides and padding of a convolution or pooling."""
    attrs: dict[str, Any] = {"strides": spread(layer.stride_nd, rank)}
    mode = layer.padding_mode
    member(mode, e.PaddingMode, "padding_mode")
    if mode in (e.PaddingMode.SAME_UPPER, e.PaddingMode.SAME_LOWER):
        return attrs | {"auto_pad": mode.op}
    before = layer.padding_nd if layer.pre_padding is None else layer.pre_padding
    after = layer.padding_nd if layer.post_padding is None else layer.post_padding
    return attrs | {"pads": spread(before, rank) + spread(after, rank)}


def _groups(kernel: Any, dense: int) -> int:
    """How many groups a kernel of so many elements is for; scripts say so only after the layer is there."""
    size = weights_of(kernel, None, np.dtype(np.float32), "kernel")
    return dense // size.size if size is not None and dense % size.size == 0 else 1


def _random(name: str, shape: Sequence[int], fan_in: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    LOG.warning("the kernel of layer %s was left out: it is Kaiming-uniform from a fixed seed", name)
    return random.kaiming_uniform(tuple(shape), fan_in).astype(dtype)


_WINDOW = {
    "stride_nd": 1,
    "padding_nd": 0,
    "pre_padding": None,
    "post_padding": None,
    "padding_mode": e.PaddingMode.EXPLICIT_ROUND_DOWN,
}


def _convolution(
    network: Definition, kind: str, input: Any, maps: int, kernel_shape: Ints, kernel: Any, bias: Any
) -> ILayer:
    x = network._resolve(input)
    rank = rank_of(x) - 2
    if rank < 1:
        raise ShapeError("a convolution reads [N, C, spatial...]", tensor=x.name, got=str(list(x.symbolic_shape)))
    if int(maps) < 1:
        raise ShapeError("a convolution has output maps", tensor=x.name, expected="1 or more", got=str(maps))
    properties: dict[str, Any] = {
        "num_output_maps": int(maps),
        "kernel_size_nd": tuple(spread(kernel_shape, rank, "kernel_shape")),
        "kernel": kernel,
        "bias": bias,
        "dilation_nd": 1,
        "num_groups": 1,
        **_WINDOW,
    }
    channels = x._native().shape[1]
    if kernel is not None and isinstance(channels, int):
        properties["num_groups"] = _groups(kernel, channels * int(maps) * math.prod(properties["kernel_size_nd"]))
    filled: dict[Any, Any] = {}

    def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
        channels, dtype, groups = scope[0].shape[1], scope[0].dtype, int(layer.num_groups)
        if not isinstance(channels, int) or channels % groups or layer.num_output_maps % groups:
            raise ShapeError(
                "channels do not divide into the groups", got=f"{channels} to {layer.num_output_maps} in {groups}"
            )
        sizes = spread(layer.kernel_size_nd, rank)
        transposed = kind == "Deconvolution"
        outer, inner = (channels, layer.num_output_maps) if transposed else (layer.num_output_maps, channels)
        shape = (outer, inner // groups, *sizes)
        fan_in = channels // groups * math.prod(sizes)
        if layer.kernel is None and shape not in filled:
            filled[shape] = _random(layer.name, shape, fan_in, dtype)
        kernel = filled.get(shape) if layer.kernel is None else weights_of(layer.kernel, shape, dtype, "kernel")
        offset = weights_of(layer.bias, (layer.num_output_maps,), dtype, "bias")
        tensors = [scope.constant(kernel, what="weight")]
        tensors += [] if offset is None else [scope.constant(offset, what="bias")]
        return [
            scope.add(
                "ConvTranspose" if transposed else "Conv",
                scope[0],
                *tensors,
                group=groups,
                dilations=spread(layer.dilation_nd, rank),
                **_window(layer, rank),
            )
        ]

    return network._append(kind, [x], properties, emit)


class ConvolutionLayers(Definition):
    """Layers that slide a window: convolution, pooling."""

    def add_convolution_nd(
        self,
        input: Any,
        num_output_maps: int,
        kernel_shape: Ints,
        kernel: Any = None,
        bias: Any = None,
    ) -> ILayer:
        """Convolution.

        Properties: stride_nd, padding_nd, pre_padding, post_padding, padding_mode, dilation_nd, num_groups.
        """
        return _convolution(self, "Convolution", input, num_output_maps, kernel_shape, kernel, bias)

    def add_deconvolution_nd(
        self,
        input: Any,
        num_output_maps: int,
        kernel_shape: Ints,
        kernel: Any = None,
        bias: Any = None,
    ) -> ILayer:
        """Transposed convolution, with the properties of a convolution."""
        return _convolution(self, "Deconvolution", input, num_output_maps, kernel_shape, kernel, bias)

    def add_pooling_nd(self, input: Any, type: e.PoolingType, window_size: Ints) -> ILayer:
        """Pooling.

        Properties: type, window_size_nd, stride_nd (1 at first), padding_nd, pre_padding, post_padding,
        padding_mode, average_count_excludes_padding, blend_factor (of the average, for MAX_AVERAGE_BLEND).
        """
        x = self._resolve(input)
        rank = rank_of(x) - 2
        member(type, e.PoolingType, "the type")
        properties = {
            **_WINDOW,
            "type": type,
            "window_size_nd": tuple(spread(window_size, rank, "window_size")),
            "stride_nd": (1,) * rank,
            "average_count_excludes_padding": True,
            "blend_factor": 0.0,
        }

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            attrs = _window(layer, rank) | {"kernel_shape": spread(layer.window_size_nd, rank)}
            kind = layer.type
            attrs["ceil_mode"] = int(layer.padding_mode is e.PaddingMode.EXPLICIT_ROUND_UP)
            counts = {"count_include_pad": int(not layer.average_count_excludes_padding)}
            if kind is e.PoolingType.MAX:
                return [scope.add("MaxPool", scope[0], **attrs)]
            average = scope.add("AveragePool", scope[0], **attrs, **counts)
            if kind is e.PoolingType.AVERAGE:
                return [average]
            blend = float(layer.blend_factor)
            dtype = scope[0].dtype
            most = scope.add("Mul", scope.add("MaxPool", scope[0], **attrs), scope.constant(1.0 - blend, dtype))
            return [scope.add("Add", most, scope.add("Mul", average, scope.constant(blend, dtype)))]

        return self._append("Pooling", [x], properties, emit)

    #: Names that TensorRT had before.
    add_convolution = add_convolution_nd
    add_deconvolution = add_deconvolution_nd
    add_pooling = add_pooling_nd
