"""Layers that move elements, or tell shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware.tensorrt import layer_enums as e
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, Scope
from neurenix.hardware.tensorrt.layers.common import Ints, member, rank_of, spread
from neurenix.hardware.tensorrt.weights import weights as weights_of


def _axes_input(scope: Scope) -> list[int]:
    value = scope[1].value
    if value is None or not all(isinstance(v, int) for v in value):
        raise InvalidArgumentError("the axes must be constant", layer=scope.name)
    return [int(v) for v in value]


def _slice(layer: ILayer, scope: Scope) -> list[Tensor]:
    member(layer.mode, e.SampleMode, "the mode")
    x, first = scope[0], layer.start
    if layer.mode is not e.SampleMode.STRICT_BOUNDS:
        x, first = _padded(layer, scope)
    start, size, step = (
        _one_each(scope, i, given, layer) for i, given in ((1, first), (2, layer.shape), (3, layer.stride))
    )
    if any(scope.get(i) is not None for i in (1, 2, 3)):
        ends = scope.add("Add", start, scope.add("Mul", size, step))
    else:
        if layer.mode is e.SampleMode.STRICT_BOUNDS:
            _require_inside(layer, scope[0])
        triples = zip(first, layer.shape, layer.stride, strict=True)
        # With a negative step an end below 0 means: down to the first element.
        ends = scope.constant([(b + n * s if s > 0 or b + n * s >= 0 else -(2**62)) for b, n, s in triples], np.int64)
    axes = scope.constant(list(range(rank_of(x))) if layer.axes is None else list(layer.axes), np.int64)
    return [scope.add("Slice", x, start, ends, axes, step)]


def _one_each(scope: Scope, index: int, given: Sequence[int], layer: ILayer) -> Tensor:
    """The start, shape or stride of a slice: from an input, or of the layer, one number for each axis."""
    count = rank_of(scope[0]) if layer.axes is None else len(layer.axes)
    if scope.get(index) is None and len(given) != count:
        what = ("start", "shape", "stride")[index - 1]
        raise InvalidArgumentError(
            f"the {what} of a slice has one number for each axis",
            expected=f"{count}, or an input {index}",
            got=str(given),
        )
    found = scope.integers(index, given)
    assert found is not None
    return found


def _require_inside(layer: ILayer, x: Tensor) -> None:
    """Raises `ShapeError` for a slice that would read what the input does not have."""
    axes = range(rank_of(x)) if layer.axes is None else layer.axes
    for axis, first, count, step in zip(axes, layer.start, layer.shape, layer.stride, strict=True):
        extent, last = x.shape[axis], first + (count - 1) * step
        if count > 0 and (min(first, last) < 0 or (isinstance(extent, int) and max(first, last) >= extent)):
            raise ShapeError(
                f"a slice reads beyond its input along axis {axis}",
                tensor=x.name,
                expected=f"places 0 to {extent - 1}" if isinstance(extent, int) else "places from 0 on",
                got=f"places {first} to {last} (start {first}, {count} by steps of {step})",
                hint="set layer.mode to SampleMode.CLAMP, FILL or REFLECT for what stands outside",
            )


def _padded(layer: ILayer, scope: Scope) -> tuple[Tensor, list[int]]:
    """The input with as much around it as a slice reads beyond its ends, and where the slice starts in that."""
    if any(scope.get(i) is not None for i in (1, 2, 3)) or layer.axes is not None:
        raise UnsupportedError(
            "a slice beyond the ends of its input has a constant start, shape and stride for all axes"
        )
    before, after = [], []
    for axis, (dim, first, count, step) in enumerate(
        zip(scope[0].shape, layer.start, layer.shape, layer.stride, strict=True)
    ):
        last = first + (count - 1) * step
        if not isinstance(dim, int) and (min(first, last) < 0 or count > 1):
            raise UnsupportedError("a slice beyond the ends of a dynamic dimension", got=f"dimension {axis}: {dim}")
        before.append(max(0, -min(first, last)))
        after.append(max(0, max(first, last) - (dim - 1)) if isinstance(dim, int) else 0)
    if layer.mode is e.SampleMode.WRAP:
        raise UnsupportedError("a slice does not go around its input", got=str(layer.mode))
    fill = scope.get(4) if layer.mode is e.SampleMode.FILL else None
    if fill is not None:
        fill = scope.add("Reshape", fill, scope.constant([], np.int64))
    padded = scope.add("Pad", scope[0], scope.constant(before + after, np.int64), fill, mode=layer.mode.op)
    return padded, [first + extra for first, extra in zip(layer.start, before, strict=True)]


class ShapeLayers(Definition):
    """Layers that move elements, or tell shapes."""

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
        return self._append("Shuffle", [input], properties, emit, takes=2)

    def add_constant(self, shape: Sequence[int], weights: Any) -> ILayer:
        """A constant. Properties: shape, weights."""

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            value = layer.weights
            array = value.array if hasattr(value, "array") else np.asarray(value)
            filled = weights_of(array, list(layer.shape), array.dtype, "the constant")
            return [scope.constant(np.zeros(tuple(layer.shape), array.dtype) if filled is None else filled)]

        return self._append("Constant", [], {"shape": tuple(shape), "weights": weights}, emit)

    def add_concatenation(self, inputs: Sequence[Any]) -> ILayer:
        """Tensors one after another. Properties: axis (at first the third from the back, or 0)."""
        if not inputs:
            raise InvalidArgumentError("a concatenation has inputs", expected="one or more tensors", got="none")
        first = self._resolve(inputs[0])
        axis = max(0, rank_of(first) - 3)
        return self._append(
            "Concatenation",
            inputs,
            {"axis": axis},
            lambda layer, scope: [scope.add("Concat", *scope.inputs, axis=int(layer.axis))],
            # The axis that is meant is said behind this.
            late=True,
        )

    def add_resize(self, input: Any) -> ILayer:
        """Resampling; `set_input(1, shape)` takes the extents from a tensor.

        Properties: shape or scales, resize_mode, coordinate_transformation, nearest_rounding, cubic_coeff,
        exclude_outside, selector_for_single_pixel.
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            scales = sizes = None
            if scope.get(1) is not None:
                sizes = scope.integers(1, None)
            elif layer.shape is not None:
                sizes = scope.constant(list(layer.shape), np.int64)
            elif layer.scales is not None:
                scales = scope.constant(list(layer.scales), np.float32)
            else:
                return [scope.add("Identity", scope[0])]
            places = layer.coordinate_transformation.op
            if places == "half_pixel" and layer.selector_for_single_pixel is e.ResizeSelector.UPPER:
                # The same, but that the only pixel along an axis is the first one.
                places = "pytorch_half_pixel"
            return [
                scope.add(
                    "Resize",
                    scope[0],
                    None,
                    scales,
                    sizes,
                    mode=layer.resize_mode.op,
                    coordinate_transformation_mode=places,
                    nearest_mode=layer.nearest_rounding.op,
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
            "selector_for_single_pixel": e.ResizeSelector.FORMULA,
        }
        return self._append("Resize", [input], properties, emit, takes=2)

    def add_slice(self, input: Any, start: Sequence[int], shape: Sequence[int], stride: Sequence[int]) -> ILayer:
        """Elements from `start`, as many as `shape` says, by steps; `set_input(1, start)`, `(2, shape)`, `(3, stride)`
        take them from tensors, `(4, value)` what FILL puts outside.

        Properties: start, shape, stride, axes (None: all), mode (what stands outside of the input; STRICT_BOUNDS:
        nothing may, and what is known to be read there is refused with `ShapeError`).
        """
        properties = {
            "start": tuple(start),
            "shape": tuple(shape),
            "stride": tuple(stride),
            "axes": None,
            "mode": e.SampleMode.STRICT_BOUNDS,
        }
        # What is left empty comes as inputs, and what may stand outside is said behind this.
        return self._append("Slice", [input], properties, _slice, takes=5, late=True)

    def add_shape(self, input: Any) -> ILayer:
        """The extents of the dimensions, as int64."""
        return self._append("Shape", [input], {}, lambda layer, scope: [scope.add("Shape", scope[0])])

    def add_padding_nd(self, input: Any, pre_padding: Ints, post_padding: Ints) -> ILayer:
        """Zeros around the last two dimensions; negative ones cut. Properties: pre_padding_nd, post_padding_nd."""

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            rank = rank_of(scope[0])
            ends = [[0] * (rank - 2) + spread(v, 2) for v in (layer.pre_padding_nd, layer.post_padding_nd)]
            return [scope.add("Pad", scope[0], scope.constant(ends[0] + ends[1], np.int64))]

        properties = {"pre_padding_nd": pre_padding, "post_padding_nd": post_padding}
        return self._append("Padding", [input], properties, emit)

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

    #: A name that TensorRT had before.
    add_padding = add_padding_nd
