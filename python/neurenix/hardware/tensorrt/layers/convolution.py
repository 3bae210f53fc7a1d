"""Layers that slide a window: convolution, pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix import random
from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.hardware.tensorrt import layer_enums as e
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, Scope
from neurenix.hardware.tensorrt.layers.common import Ints, member, rank_of, spread
from neurenix.hardware.tensorrt.weights import weights as weights_of
from neurenix.log import LOG


def _window(layer: ILayer, rank: int, rounds_up: bool = False) -> dict[str, Any]:
    """Strides and padding of a convolution or pooling; `rounds_up`: a last window that begins inside is a result, its
    rest being padded.
    """
    attrs: dict[str, Any] = {"strides": spread(layer.stride_nd, rank)}
    mode = layer.padding_mode
    member(mode, e.PaddingMode, "padding_mode")
    if mode in (e.PaddingMode.SAME_UPPER, e.PaddingMode.SAME_LOWER):
        return attrs | {"auto_pad": mode.op}
    before = layer.padding_nd if layer.pre_padding is None else layer.pre_padding
    after = layer.padding_nd if layer.post_padding is None else layer.post_padding
    ends = spread(after, rank)
    if rounds_up and mode is e.PaddingMode.EXPLICIT_ROUND_UP:
        ends = [end + stride - 1 for end, stride in zip(ends, attrs["strides"], strict=True)]
    return attrs | {"pads": spread(before, rank) + ends}


def _groups(kernel: np.ndarray[Any, Any], dense: int) -> int:
    """How many groups a kernel of so many elements is for; scripts say so only after the layer is there."""
    return dense // kernel.size if dense % kernel.size == 0 else 1


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
    channels, given = x._native().shape[1], weights_of(kernel, None, np.dtype(np.float32), "kernel")
    if given is not None and isinstance(channels, int):
        properties["num_groups"] = _groups(given, channels * int(maps) * math.prod(properties["kernel_size_nd"]))
    filled: dict[Any, Any] = {}

    def kernel_of(layer: ILayer, scope: Scope, shape: tuple[int, ...], fan_in: int) -> Tensor:
        tensor, dtype = scope.get(1), scope[0].dtype
        found = weights_of(layer.kernel, shape, dtype, "kernel")
        if tensor is not None:
            _only_once(found, tensor, "kernel")
            return _of_shape(tensor, shape, "kernel")
        if found is None:
            if shape not in filled:
                filled[shape] = _random(layer.name, shape, fan_in, dtype)
            found = filled[shape]
        return scope.constant(found, what="weight")

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
        tensors = [kernel_of(layer, scope, shape, channels // groups * math.prod(sizes))]
        offset, added = weights_of(layer.bias, (layer.num_output_maps,), dtype, "bias"), scope.get(2)
        if added is not None:
            _only_once(offset, added, "bias")
            tensors.append(_of_shape(added, (layer.num_output_maps,), "bias"))
        elif offset is not None:
            tensors.append(scope.constant(offset, what="bias"))
        return [
            scope.add(
                "ConvTranspose" if transposed else "Conv",
                scope[0],
                *tensors,
                group=groups,
                dilations=spread(layer.dilation_nd, rank),
                **_window(layer, rank, rounds_up=not transposed),
            )
        ]

    # Without a kernel, one may come as an input: until then there is nothing to say of the layer.
    return network._append(kind, [x], properties, emit, takes=3, late=given is None)


def _only_once(weights: np.ndarray[Any, Any] | None, tensor: Tensor, what: str) -> None:
    if weights is not None:
        raise InvalidArgumentError(
            f"the {what} is there twice: as weights and as an input",
            tensor=tensor.name,
            expected="weights without elements (trt.Weights()) where set_input brings them",
            got=f"{weights.size} weights",
        )


def _of_shape(tensor: Tensor, shape: tuple[int, ...], what: str) -> Tensor:
    if tuple(tensor.shape) != shape:
        raise ShapeError(
            f"the {what} has another shape than the layer needs",
            tensor=tensor.name,
            expected=str(list(shape)),
            got=str(list(tensor.shape)),
        )
    return tensor


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
        """Convolution; `set_input(1, kernel)` and `(2, bias)` take these from tensors, [maps, channels / groups,
        sizes...] and [maps].

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
        """Transposed convolution, with the properties of a convolution; a kernel from a tensor is [channels, maps /
        groups, sizes...].
        """
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
