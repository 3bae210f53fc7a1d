"""Layers that read and write by indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware.tensorrt import layer_enums as e
from neurenix.hardware.tensorrt.enums import as_dtype
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layer import ILayer, Scope
from neurenix.hardware.tensorrt.layers.common import member, rank_of

#: TensorRT's default of topk_box_limit, which is its greatest value too.
_BOX_LIMIT = 5000


def _gather(layer: ILayer, scope: Scope) -> list[Tensor]:
    shared = int(layer.num_elementwise_dims)
    if layer.mode is e.GatherMode.ND:
        return [scope.add("GatherND", scope[0], scope[1], batch_dims=shared)]
    most = 1 if layer.mode is e.GatherMode.DEFAULT else 0
    if not 0 <= shared <= most:
        raise InvalidArgumentError(
            "num_elementwise_dims does not go with the mode",
            expected=" or ".join(map(str, range(most + 1))),
            got=f"{shared} with {layer.mode}",
        )
    if shared:
        return [_gather_by_row(scope, int(layer.axis))]
    return [scope.add(layer.mode.op, scope[0], scope[1], axis=int(layer.axis))]


def _gather_by_row(scope: Scope, axis: int) -> Tensor:
    """Entries of an axis behind the first one, by the numbers that each entry of the first one has."""
    x, indices = scope[0], scope[1]
    rank, extra = rank_of(x), rank_of(indices) - 1
    axis %= rank
    if axis < 1 or extra < 0:
        raise ShapeError(
            "a gather with num_elementwise_dims 1 is along an axis behind the first one",
            expected=f"an axis from 1 to {rank - 1}, and indices of one dimension or more",
            got=f"axis {axis}, {extra + 1} dimensions",
        )
    others = [a for a in range(1, rank) if a != axis]
    first = scope.add("Transpose", x, perm=[0, axis, *others])
    found = scope.add("GatherND", first, scope.add("Unsqueeze", indices, axes=[extra + 1]), batch_dims=1)
    # What was gathered stands behind the first axis, and belongs where the axis was.
    gathered, rest = list(range(1, 1 + extra)), list(range(1 + extra, extra + rank - 1))
    return scope.add("Transpose", found, perm=[0, *rest[: axis - 1], *gathered, *rest[axis - 1 :]])


def _within_limit(layer: ILayer, scope: Scope, by_class: Tensor) -> Tensor:
    """Scores [batch, classes, boxes], those beyond the limit of a picture being minus infinity."""
    limit, extents = int(layer.topk_box_limit), by_class.shape[1:]
    known = [d for d in extents if isinstance(d, int)]
    if limit == _BOX_LIMIT or (len(known) == len(extents) and math.prod(known) <= limit):
        return by_class
    if len(known) < len(extents):
        raise UnsupportedError(
            "topk_box_limit needs a known number of boxes and classes", expected="constant extents", got=str(extents)
        )
    if limit < 1:
        raise InvalidArgumentError("topk_box_limit is no number of boxes", expected="1 or more", got=str(limit))
    flat = scope.add("Reshape", by_class, scope.constant([0, -1], np.int64))
    best, places = scope.add_all("TopK", [flat, scope.constant([limit], np.int64)], axis=1, largest=1)
    nothing = scope.add("Expand", scope.constant(-np.inf, flat.dtype), scope.add("Shape", flat))
    kept = scope.add("ScatterElements", nothing, places, best, axis=1)
    return scope.add("Reshape", kept, scope.constant([0, *extents], np.int64))


class IndexingLayers(Definition):
    """Layers that read and write by indices."""

    def add_gather(self, input: Any, indices: Any, axis: int) -> ILayer:
        """Entries of an axis by number.

        Properties: axis, mode, num_elementwise_dims (1: each entry of the first axis has indices of its own).
        """
        return self._append(
            "Gather",
            [input, indices],
            {"axis": int(axis), "mode": e.GatherMode.DEFAULT, "num_elementwise_dims": 0},
            _gather,
        )

    def add_gather_v2(self, input: Any, indices: Any, mode: e.GatherMode) -> ILayer:
        """ONNX's Gather, GatherElements or GatherND. Properties: axis, num_elementwise_dims."""
        member(mode, e.GatherMode, "the mode")
        return self._append("Gather", [input, indices], {"axis": 0, "mode": mode, "num_elementwise_dims": 0}, _gather)

    def add_one_hot(self, indices: Any, values: Any, depth: Any, axis: int) -> ILayer:
        """Vectors that are values[1] where the index says, values[0] elsewhere. Properties: axis."""
        return self._append(
            "OneHot",
            [indices, values, depth],
            {"axis": int(axis)},
            lambda layer, scope: [scope.add("OneHot", scope[0], scope[2], scope[1], axis=int(layer.axis))],
        )

    def add_scatter(self, data: Any, indices: Any, updates: Any, mode: e.ScatterMode) -> ILayer:
        """ONNX's ScatterElements or ScatterND. Properties: mode, axis (of ELEMENT)."""
        member(mode, e.ScatterMode, "the mode")

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            attrs = {"axis": int(layer.axis)} if layer.mode is e.ScatterMode.ELEMENT else {}
            return [scope.add(layer.mode.op, *scope.inputs, **attrs)]

        return self._append("Scatter", [data, indices, updates], {"mode": mode, "axis": 0}, emit)

    def add_non_zero(self, input: Any, indices_type: Any = np.int32) -> ILayer:
        """Where elements are not zero: [rank, count], and (second output) the count, both of `indices_type`.

        Properties: indices_type.
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            dtype = as_dtype(layer.indices_type)
            found = scope.add("NonZero", scope[0])
            count = scope.add("Gather", scope.add("Shape", found), scope.constant(1, np.int64), axis=0)
            return [scope.add("Cast", tensor, to=dtype) for tensor in (found, count)]

        return self._append("NonZero", [input], {"indices_type": indices_type}, emit, outputs=2)

    def add_nms(self, boxes: Any, scores: Any, max_output_boxes_per_class: Any, indices_type: Any = np.int32) -> ILayer:
        """Non-maximum suppression of boxes [N, boxes, 1, 4] (or without the 1) by scores [N, boxes, classes].

        Gives [found, 3] (batch, class, box), and (second output) how many, both of `indices_type`. `set_input(3, t)`
        and `(4, t)` bring the thresholds of overlap and of scores. Properties: bounding_box_format, indices_type,
        topk_box_limit (how many pairs of box and class of a picture are considered, the best ones; 5000, TensorRT's
        default and limit, stands for all).
        """

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            boxes = scope[0]
            if rank_of(boxes) == 4:
                if boxes.shape[2] != 1:
                    raise UnsupportedError("boxes are the same for all classes", expected="[N, boxes, 1, 4]",
                                           got=str(list(boxes.shape)))  # fmt: skip
                boxes = scope.add("Squeeze", boxes, axes=[2])
            by_class = _within_limit(layer, scope, scope.add("Transpose", scope[1], perm=[0, 2, 1]))
            most = scope.add("Reshape", scope.integers(2, None), scope.constant([1], np.int64))
            # Above minus infinity, where there is no other threshold.
            lowest = scope.constant(np.finfo(np.float32).min, np.float32)
            levels = [scope.get(3), lowest if scope.get(4) is None else scope[4]]
            one = scope.constant([1], np.int64)
            limits = [None if level is None else scope.add("Reshape", level, one) for level in levels]
            centred = int(layer.bounding_box_format is e.BoundingBoxFormat.CENTER_SIZES)
            found = scope.add("NonMaxSuppression", boxes, by_class, most, *limits, center_point_box=centred)
            count = scope.add("Gather", scope.add("Shape", found), scope.constant(0, np.int64), axis=0)
            return [scope.add("Cast", tensor, to=as_dtype(layer.indices_type)) for tensor in (found, count)]

        properties = {
            "bounding_box_format": e.BoundingBoxFormat.CORNER_PAIRS,
            "topk_box_limit": _BOX_LIMIT,
            "indices_type": indices_type,
        }
        given = [boxes, scores, max_output_boxes_per_class]
        return self._append("NMS", given, properties, emit, outputs=2, takes=5)

    def add_grid_sample(self, input: Any, grid: Any) -> ILayer:
        """Elements at the places of a grid. Properties: interpolation_mode, align_corners, sample_mode."""
        modes = {e.SampleMode.FILL: "zeros", e.SampleMode.CLAMP: "border", e.SampleMode.REFLECT: "reflection"}

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            if layer.sample_mode not in modes:
                raise UnsupportedError("a grid can't sample so", expected=", ".join(map(str, modes)),
                                       got=str(layer.sample_mode))  # fmt: skip
            return [
                scope.add(
                    "GridSample",
                    scope[0],
                    scope[1],
                    mode=layer.interpolation_mode.op,
                    align_corners=int(layer.align_corners),
                    padding_mode=modes[layer.sample_mode],
                )
            ]

        properties = {
            "interpolation_mode": e.InterpolationMode.LINEAR,
            "align_corners": False,
            "sample_mode": e.SampleMode.FILL,
        }
        return self._append("GridSample", [input, grid], properties, emit)

    def add_reverse_sequence(self, input: Any, sequence_lens: Any) -> ILayer:
        """As many first elements of each sequence in reverse as it has. Properties: batch_axis, sequence_axis."""

        def emit(layer: ILayer, scope: Scope) -> list[Tensor]:
            axes = {"batch_axis": int(layer.batch_axis), "time_axis": int(layer.sequence_axis)}
            return [scope.add("ReverseSequence", scope[0], scope.integers(1, None), **axes)]

        properties = {"batch_axis": 1, "sequence_axis": 0}
        return self._append("ReverseSequence", [input, sequence_lens], properties, emit, late=True)
