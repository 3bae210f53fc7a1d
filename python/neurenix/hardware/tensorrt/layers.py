"""INetworkDefinition: all layers of the network API, with TensorRT's names and arguments.

Each method says what the layer reads, what its properties are at first, and which of our ops it becomes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix import random
from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.hardware.tensorrt import enums as e
from neurenix.hardware.tensorrt.graph import Definition, ILayer, Scope, weights
from neurenix.hardware.tensorrt.plugins.layers import PluginLayers
from neurenix.log import LOG

Ints = int | Sequence[int]


def spread(value: Ints, rank: int) -> list[int]:
    """One integer for every spatial dimension, or as many as there are."""
    values = [int(value)] * rank if isinstance(value, (int, np.integer)) else [int(v) for v in value]
    if len(values) != rank:
        raise ShapeError("a list does not have one element per spatial dimension", expected=str(rank), got=str(values))
    return values


def axes_of(mask: int, rank: int) -> list[int]:
    """The axes whose bits are set."""
    found = [axis for axis in range(rank) if mask >> axis & 1]
    if mask >> rank or not found:
        raise InvalidArgumentError(
            "the axes are given as bits", expected=f"1 to {(1 << rank) - 1}, bit i for axis i", got=str(mask)
        )
    return found


def _member(value: Any, table: type, what: str) -> None:
    if not isinstance(value, table):
        raise InvalidArgumentError(f"{what} is no {table.__name__}", got=repr(value))


def _rank(tensor: Any) -> int:
    return len(tensor.shape)


def _window(layer: ILayer, rank: int) -> dict[str, Any]:
    """Strides and padding of a convolution or pooling."""
    attrs: dict[str, Any] = {"strides": spread(layer.stride_nd, rank)}
    mode = layer.padding_mode
    _member(mode, e.PaddingMode, "padding_mode")
    if mode in (e.PaddingMode.SAME_UPPER, e.PaddingMode.SAME_LOWER):
        return attrs | {"auto_pad": mode.value}
    before = layer.padding_nd if layer.pre_padding is None else layer.pre_padding
    after = layer.padding_nd if layer.post_padding is None else layer.post_padding
    return attrs | {"pads": spread(before, rank) + spread(after, rank)}


def _groups(kernel: Any, dense: int) -> int:
    """How many groups a kernel of so many elements is for; scripts say so only after the layer is there."""
    size = weights(kernel, None, np.dtype(np.float32), "kernel")
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
    rank = _rank(x) - 2
    if rank < 1:
        raise ShapeError("a convolution reads [N, C, spatial...]", tensor=x.name, got=str(list(x.symbolic_shape)))
    properties: dict[str, Any] = {
        "num_output_maps": int(maps),
        "kernel_size_nd": tuple(spread(kernel_shape, rank)),
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
        kernel = filled.get(shape) if layer.kernel is None else weights(layer.kernel, shape, dtype, "kernel")
        offset = weights(layer.bias, (layer.num_output_maps,), dtype, "bias")
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


def _gather(layer: ILayer, scope: Scope) -> list[Tensor]:
    if layer.mode is e.GatherMode.ND:
        return [scope.add("GatherND", scope[0], scope[1], batch_dims=int(layer.num_elementwise_dims))]
    return [scope.add(layer.mode.value, scope[0], scope[1], axis=int(layer.axis))]


def _axes_input(scope: Scope) -> list[int]:
    value = scope[1].value
    if value is None or not all(isinstance(v, int) for v in value):
        raise InvalidArgumentError("the axes must be constant", layer=scope.name)
    return [int(v) for v in value]


class INetworkDefinition(PluginLayers):
    """A network in the making; a layer stands for its first output wherever a tensor is expected."""

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

        Properties: type, window_size_nd, stride_nd (the window's size at first), padding_nd, pre_padding, post_padding,
        padding_mode, average_count_excludes_padding.
        """
        x = self._resolve(input)
        rank = _rank(x) - 2
        _member(type, e.PoolingType, "the type")
        properties = {
            **_WINDOW,
            "type": type,
            "window_size_nd": tuple(spread(window_size, rank)),
            "stride_nd": tuple(spread(window_size, rank)),
            "average_count_excludes_padding": True,
        }

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            attrs = _window(layer, rank) | {"kernel_shape": spread(layer.window_size_nd, rank)}
            kind = layer.type
            if kind is e.PoolingType.AVERAGE:
                attrs["count_include_pad"] = int(not layer.average_count_excludes_padding)
            attrs["ceil_mode"] = int(layer.padding_mode is e.PaddingMode.EXPLICIT_ROUND_UP)
            return [scope.add(kind.value, scope[0], **attrs)]

        return self._append("Pooling", [x], properties, emit)

    def add_activation(self, input: Any, type: e.ActivationType) -> ILayer:
        """Activation. Properties: type, alpha, beta."""
        _member(type, e.ActivationType, "the type")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            x, kind = scope[0], layer.type
            alpha, beta = layer.alpha, layer.beta
            given = {} if alpha is None else {"alpha": float(alpha)}
            if kind is e.ActivationType.CLIP:
                bounds = (-1.0 if alpha is None else alpha, 1.0 if beta is None else beta)
                low, high = (scope.constant(bound, x.dtype) for bound in bounds)
                return [scope.add("Clip", x, low, high)]
            if kind is e.ActivationType.SCALED_TANH:
                inner = x if beta is None else scope.add("Mul", x, scope.constant(beta, x.dtype))
                outer = scope.add("Tanh", inner)
                return [outer if alpha is None else scope.add("Mul", outer, scope.constant(alpha, x.dtype))]
            if kind is e.ActivationType.GELU_TANH:
                return [scope.add("Gelu", x, approximate="tanh")]
            if kind is e.ActivationType.HARD_SIGMOID:
                return [scope.add("HardSigmoid", x, **given, **({} if beta is None else {"beta": float(beta)}))]
            if kind is e.ActivationType.SELU and beta is not None:
                given["gamma"] = float(beta)
            takes = {
                e.ActivationType.LEAKY_RELU,
                e.ActivationType.ELU,
                e.ActivationType.SELU,
                e.ActivationType.THRESHOLDED_RELU,
            }
            return [scope.add(kind.value, x, **(given if kind in takes else {}))]

        return self._append("Activation", [input], {"type": type, "alpha": None, "beta": None}, emit)

    def add_matrix_multiply(self, input0: Any, op0: e.MatrixOperation, input1: Any, op1: e.MatrixOperation) -> ILayer:
        """The matrix product. Properties: op0, op1."""
        for op in (op0, op1):
            _member(op, e.MatrixOperation, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            a, b = scope[0], scope[1]
            left, right = layer.op0, layer.op1
            if left is e.MatrixOperation.VECTOR:
                a = scope.add("Unsqueeze", a, axes=[-2])
            if right is e.MatrixOperation.VECTOR:
                b = scope.add("Unsqueeze", b, axes=[-1])
            transposed = e.MatrixOperation.TRANSPOSE
            y = scope.add("MatMul", a, b, transA=int(left is transposed), transB=int(right is transposed))
            gone = [axis for axis, op in ((-2, left), (-1, right)) if op is e.MatrixOperation.VECTOR]
            return [scope.add("Squeeze", y, axes=gone) if gone else y]

        return self._append("MatrixMultiply", [input0, input1], {"op0": op0, "op1": op1}, emit)

    def add_elementwise(self, input1: Any, input2: Any, op: e.ElementWiseOperation) -> ILayer:
        """An operation on two tensors of one rank. Properties: op."""
        _member(op, e.ElementWiseOperation, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            a, b = scope[0], scope[1]
            if layer.op is e.ElementWiseOperation.FLOOR_DIV:
                if a.dtype.kind in "iu":
                    # Division truncates towards zero; the remainder tells where the floor is one below.
                    rest = scope.add("Mod", a, b)
                    return [scope.add("Div", scope.add("Sub", a, rest), b)]
                return [scope.add("Floor", scope.add("Div", a, b))]
            return [scope.add(layer.op.value, a, b)]

        return self._append("ElementWise", [input1, input2], {"op": op}, emit)

    def add_unary(self, input: Any, op: e.UnaryOperation) -> ILayer:
        """An operation on one tensor. Properties: op."""
        _member(op, e.UnaryOperation, "the operation")
        return self._append("Unary", [input], {"op": op}, lambda layer, scope: [scope.add(layer.op.value, scope[0])])

    def add_shuffle(self, input: Any) -> ILayer:
        """Transpose, reshape, transpose; `set_input(1, shape)` takes the dimensions from a tensor.

        Properties: first_transpose, reshape_dims, second_transpose, zero_is_placeholder.
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            y = scope[0]
            if layer.first_transpose is not None:
                y = scope.add("Transpose", y, perm=list(layer.first_transpose))
            shape = scope.get(1)
            if shape is None and layer.reshape_dims is not None:
                shape = scope.constant(list(layer.reshape_dims), np.int64)
            if shape is not None:
                y = scope.add("Reshape", y, shape, allowzero=int(not layer.zero_is_placeholder))
            if layer.second_transpose is not None:
                y = scope.add("Transpose", y, perm=list(layer.second_transpose))
            return [scope.add("Identity", y) if y is scope[0] else y]

        properties = {
            "first_transpose": None,
            "reshape_dims": None,
            "second_transpose": None,
            "zero_is_placeholder": True,
        }
        return self._append("Shuffle", [input], properties, emit)

    def add_constant(self, shape: Sequence[int], weights_: Any) -> ILayer:
        """A constant. Properties: shape, weights."""

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            value = layer.weights
            array = value.array if hasattr(value, "array") else np.asarray(value)
            filled = weights(array, list(layer.shape), array.dtype, "the constant")
            return [scope.constant(np.zeros(tuple(layer.shape), array.dtype) if filled is None else filled)]

        return self._append("Constant", [], {"shape": tuple(shape), "weights": weights_}, emit)

    def add_softmax(self, input: Any) -> ILayer:
        """Softmax. Properties: axes, one bit (at first axis 1, or 0 of a vector)."""
        x = self._resolve(input)

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            axes = axes_of(layer.axes, _rank(scope[0]))
            if len(axes) != 1:
                raise InvalidArgumentError("a softmax runs along one axis", got=str(axes))
            return [scope.add("Softmax", scope[0], axis=axes[0])]

        return self._append("SoftMax", [x], {"axes": 1 << min(1, max(0, _rank(x) - 1))}, emit)

    def add_concatenation(self, inputs: Sequence[Any]) -> ILayer:
        """Tensors one after another. Properties: axis (at first the third from the back, or 0)."""
        first = self._resolve(inputs[0])
        axis = max(0, _rank(first) - 3)
        return self._append(
            "Concatenation",
            inputs,
            {"axis": axis},
            lambda layer, scope: [scope.add("Concat", *scope.inputs, axis=int(layer.axis))],
        )

    def add_reduce(self, input: Any, op: e.ReduceOperation, axes: int, keep_dims: bool = False) -> ILayer:
        """A reduction. Properties: op, axes (bits), keep_dims."""
        _member(op, e.ReduceOperation, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            found = axes_of(layer.axes, _rank(scope[0]))
            return [scope.add(layer.op.value, scope[0], axes=found, keepdims=int(layer.keep_dims))]

        return self._append("Reduce", [input], {"op": op, "axes": int(axes), "keep_dims": keep_dims}, emit)

    def add_scale(
        self, input: Any, mode: e.ScaleMode, shift: Any = None, scale: Any = None, power: Any = None
    ) -> ILayer:
        """(x * scale + shift) ** power, channels being axis 1. Properties: mode, shift, scale, power, channel_axis."""
        return self.add_scale_nd(input, mode, shift, scale, power, 1)

    def add_scale_nd(
        self,
        input: Any,
        mode: e.ScaleMode,
        shift: Any = None,
        scale: Any = None,
        power: Any = None,
        channel_axis: int = 1,
    ) -> ILayer:
        """(x * scale + shift) ** power. Properties: mode, shift, scale, power, channel_axis."""
        _member(mode, e.ScaleMode, "the mode")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            y = scope[0]
            rank = _rank(y)
            shape: list[Any] = [1] * rank
            if layer.mode is e.ScaleMode.CHANNEL:
                shape[layer.channel_axis] = y.shape[layer.channel_axis]
            elif layer.mode is e.ScaleMode.ELEMENTWISE:
                shape[layer.channel_axis :] = y.shape[layer.channel_axis :]
            for op, what in (("Mul", "scale"), ("Add", "shift"), ("Pow", "power")):
                given = weights(layer._properties[what], shape, y.dtype, what)
                if given is not None:
                    y = scope.add(op, y, scope.constant(given, what=what))
            return [scope.add("Identity", y) if y is scope[0] else y]

        properties = {"mode": mode, "shift": shift, "scale": scale, "power": power, "channel_axis": channel_axis}
        return self._append("Scale", [input], properties, emit)

    def add_resize(self, input: Any) -> ILayer:
        """Resampling; `set_input(1, shape)` takes the extents from a tensor.

        Properties: shape or scales, resize_mode, coordinate_transformation, nearest_rounding, cubic_coeff,
        exclude_outside.
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            scales = sizes = None
            if scope.get(1) is not None:
                sizes = scope.add("Cast", scope[1], to=np.dtype(np.int64))
            elif layer.shape is not None:
                sizes = scope.constant(list(layer.shape), np.int64)
            elif layer.scales is not None:
                scales = scope.constant(list(layer.scales), np.float32)
            else:
                return [scope.add("Identity", scope[0])]
            return [
                scope.add(
                    "Resize",
                    scope[0],
                    None,
                    scales,
                    sizes,
                    mode=layer.resize_mode.value,
                    coordinate_transformation_mode=layer.coordinate_transformation.value,
                    nearest_mode=layer.nearest_rounding.value,
                    cubic_coeff_a=float(layer.cubic_coeff),
                    exclude_outside=int(layer.exclude_outside),
                )
            ]

        properties = {
            "shape": None,
            "scales": None,
            "resize_mode": e.InterpolationMode.NEAREST,
            "coordinate_transformation": e.ResizeCoordinateTransformation.ASYMMETRIC,
            "nearest_rounding": e.ResizeRoundMode.FLOOR,
            "cubic_coeff": -0.75,
            "exclude_outside": False,
        }
        return self._append("Resize", [input], properties, emit)

    def add_slice(self, input: Any, start: Sequence[int], shape: Sequence[int], stride: Sequence[int]) -> ILayer:
        """Elements from `start`, as many as `shape` says, by steps. Properties: start, shape, stride, mode;
        `set_input(1, start)`, `(2, shape)`, `(3, stride)` take them from tensors."""

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            if layer.mode is not e.SampleMode.STRICT_BOUNDS:
                raise InvalidArgumentError("a Slice stays inside its input here", expected="SampleMode.STRICT_BOUNDS",
                                           got=str(layer.mode), hint="pad first, with add_padding_nd")  # fmt: skip
            start_, size, step = (
                scope.constant(list(layer._properties[what]), np.int64)
                if scope.get(i) is None
                else scope.add("Cast", scope[i], to=np.dtype(np.int64))
                for i, what in ((1, "start"), (2, "shape"), (3, "stride"))
            )
            if any(scope.get(i) is not None for i in (1, 2, 3)):
                ends = scope.add("Add", start_, scope.add("Mul", size, step))
            else:
                triples = zip(layer.start, layer.shape, layer.stride, strict=True)
                # With a negative step an end below 0 means: down to the first element.
                stops = [(b + n * s if s > 0 or b + n * s >= 0 else -(2**62)) for b, n, s in triples]
                ends = scope.constant(stops, np.int64)
            axes = scope.constant(list(range(_rank(scope[0]))), np.int64)
            return [scope.add("Slice", scope[0], start_, ends, axes, step)]

        properties = {
            "start": tuple(start),
            "shape": tuple(shape),
            "stride": tuple(stride),
            "mode": e.SampleMode.STRICT_BOUNDS,
        }
        return self._append("Slice", [input], properties, emit)

    def add_gather(self, input: Any, indices: Any, axis: int) -> ILayer:
        """Entries of an axis by number. Properties: axis."""
        return self._append(
            "Gather",
            [input, indices],
            {"axis": int(axis), "mode": e.GatherMode.DEFAULT, "num_elementwise_dims": 0},
            _gather,
        )

    def add_gather_v2(self, input: Any, indices: Any, mode: e.GatherMode) -> ILayer:
        """ONNX's Gather, GatherElements or GatherND. Properties: axis, num_elementwise_dims."""
        _member(mode, e.GatherMode, "the mode")
        return self._append("Gather", [input, indices], {"axis": 0, "mode": mode, "num_elementwise_dims": 0}, _gather)

    def add_cast(self, input: Any, to_type: Any) -> ILayer:
        """The same values as another element type. Properties: to_type."""
        e.as_dtype(to_type)
        return self._append(
            "Cast",
            [input],
            {"to_type": to_type},
            lambda layer, scope: [scope.add("Cast", scope[0], to=e.as_dtype(layer.to_type))],
        )

    def add_identity(self, input: Any) -> ILayer:
        """The same tensor."""
        return self._append("Identity", [input], {}, lambda layer, scope: [scope.add("Identity", scope[0])])

    def add_shape(self, input: Any) -> ILayer:
        """The extents of the dimensions, as int64."""
        return self._append("Shape", [input], {}, lambda layer, scope: [scope.add("Shape", scope[0])])

    def add_select(self, condition: Any, then_input: Any, else_input: Any) -> ILayer:
        """`then_input` where the condition holds, `else_input` elsewhere."""
        return self._append(
            "Select", [condition, then_input, else_input], {}, lambda layer, scope: [scope.add("Where", *scope.inputs)]
        )

    def add_topk(self, input: Any, op: e.TopKOperation, k: int, axes: int) -> ILayer:
        """The k greatest or least elements along an axis, and (second output, int32) where they were.

        Properties: op, k, axes (one bit); `set_input(1, k)` takes k from a tensor.
        """
        _member(op, e.TopKOperation, "the operation")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            axes = axes_of(layer.axes, _rank(scope[0]))
            if len(axes) != 1:
                raise InvalidArgumentError("TopK runs along one axis", got=str(axes))
            count = scope.constant([layer.k], np.int64)
            if scope.get(1) is not None:
                count = scope.add(
                    "Reshape", scope.add("Cast", scope[1], to=np.dtype(np.int64)), scope.constant([1], np.int64)
                )
            values, places = scope.add_all("TopK", [scope[0], count], axis=axes[0], largest=layer.op.value)
            return [values, scope.add("Cast", places, to=np.dtype(np.int32))]

        return self._append("TopK", [input], {"op": op, "k": int(k), "axes": int(axes)}, emit, outputs=2)

    def add_padding_nd(self, input: Any, pre_padding: Ints, post_padding: Ints) -> ILayer:
        """Zeros around the last two dimensions; negative ones cut. Properties: pre_padding_nd, post_padding_nd."""

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            rank = _rank(scope[0])
            ends = [[0] * (rank - 2) + spread(v, 2) for v in (layer.pre_padding_nd, layer.post_padding_nd)]
            return [scope.add("Pad", scope[0], scope.constant(ends[0] + ends[1], np.int64))]

        properties = {"pre_padding_nd": pre_padding, "post_padding_nd": post_padding}
        return self._append("Padding", [input], properties, emit)

    def add_normalization(self, input: Any, scale: Any, bias: Any, axes: int) -> ILayer:
        """(x - mean) / sqrt(var + epsilon) * scale + bias over axes (bits), or over num_groups groups of channels.

        Properties: axes, epsilon, num_groups (1: the axes count).
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            x, rank = scope[0], _rank(scope[0])
            if layer.num_groups != 1:
                channels = x.shape[1]
                flat = scope.constant([channels], np.int64)
                terms = [scope.add("Reshape", scope[i], flat) for i in (1, 2)]
                return [
                    scope.add(
                        "GroupNormalization", x, *terms, num_groups=layer.num_groups, epsilon=float(layer.epsilon)
                    )
                ]
            over = axes_of(layer.axes, rank)
            away = scope.add("Sub", x, scope.add("ReduceMean", x, axes=over))
            variance = scope.add("ReduceMean", scope.add("Mul", away, away), axes=over)
            deviation = scope.add("Sqrt", scope.add("Add", variance, scope.constant(layer.epsilon, x.dtype)))
            y = scope.add("Mul", scope.add("Div", away, deviation), scope[1])
            return [scope.add("Add", y, scope[2])]

        properties = {"axes": int(axes), "epsilon": 1e-5, "num_groups": 1}
        return self._append("Normalization", [input, scale, bias], properties, emit)

    def add_lrn(self, input: Any, window: int, alpha: float, beta: float, k: float) -> ILayer:
        """Local response normalisation across channels. Properties: window_size, alpha, beta, k."""
        return self._append(
            "LRN",
            [input],
            {"window_size": int(window), "alpha": alpha, "beta": beta, "k": k},
            lambda layer, scope: [
                scope.add(
                    "LRN",
                    scope[0],
                    size=layer.window_size,
                    alpha=float(layer.alpha),
                    beta=float(layer.beta),
                    bias=float(layer.k),
                )
            ],
        )

    def add_parametric_relu(self, input: Any, slopes: Any) -> ILayer:
        """x above 0, slopes * x below."""
        return self._append(
            "ParametricReLU", [input, slopes], {}, lambda layer, scope: [scope.add("PRelu", scope[0], scope[1])]
        )

    def add_squeeze(self, input: Any, axes: Any) -> ILayer:
        """Without dimensions of extent 1; `axes` is a constant tensor."""
        return self._append(
            "Squeeze", [input, axes], {}, lambda layer, scope: [scope.add("Squeeze", scope[0], axes=_axes_input(scope))]
        )

    def add_unsqueeze(self, input: Any, axes: Any) -> ILayer:
        """With new dimensions of extent 1; `axes` is a constant tensor."""
        return self._append(
            "Unsqueeze",
            [input, axes],
            {},
            lambda layer, scope: [scope.add("Unsqueeze", scope[0], axes=_axes_input(scope))],
        )

    def add_einsum(self, inputs: Sequence[Any], equation: str) -> ILayer:
        """Einstein's summation. Properties: equation."""
        return self._append(
            "Einsum",
            inputs,
            {"equation": equation},
            lambda layer, scope: [scope.add("Einsum", *scope.inputs, equation=layer.equation)],
        )

    def add_one_hot(self, indices: Any, values: Any, depth: Any, axis: int) -> ILayer:
        """Vectors that are values[1] where the index says, values[0] elsewhere. Properties: axis."""
        return self._append(
            "OneHot",
            [indices, values, depth],
            {"axis": int(axis)},
            lambda layer, scope: [scope.add("OneHot", scope[0], scope[2], scope[1], axis=int(layer.axis))],
        )

    #: Names that TensorRT had before.
    add_convolution = add_convolution_nd
    add_deconvolution = add_deconvolution_nd
    add_pooling = add_pooling_nd
    add_padding = add_padding_nd
