"""EfficientNMS: the boxes of a detector that overlap no better one, in tensors of fixed size, as TensorRT's plugin.

An example of a plugin with code of its own: several outputs of several dtypes, numpy for the processor, and a kernel in
CUDA C++ (`efficient_nms.cu`) that runs inside the engine's CUDA graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.hardware.tensorrt.enums import DataType
from neurenix.hardware.tensorrt.plugins import CudaSource, IPluginV2, PluginTensorDesc

Array = np.ndarray[Any, Any]

#: How many candidates of an image, the best ones, are compared with each other; what is behind them is dropped.
CANDIDATES = 4096
#: Threads of the block that works on an image.
THREADS = 1024
#: What a threshold of no probability at all is among raw scores.
LOWEST = -32768.0
FLOATS = (DataType.FLOAT, DataType.HALF)


class Suppression(IPluginV2):
    """What plugins that suppress boxes share: which scores count, where their boxes are, and which of them are kept."""

    score_threshold: float
    iou_threshold: float
    most: int
    background = -1
    is_raw = False
    is_agnostic = False
    is_centred = False

    @staticmethod
    def check_shapes(input_shapes: Sequence[Sequence[Any]]) -> None:
        """Raises `ShapeError` unless boxes, scores and perhaps anchors go together."""
        boxes, scores = input_shapes[:2] if len(input_shapes) in (2, 3) else ((), ())
        is_one = len(boxes) == 3 or (len(boxes) == 4 and str(boxes[2]) == "1")
        fits = len(scores) in (3, 4) and (is_one or len(boxes) == 4)
        fits = fits and _may_be(boxes[-1], 4) and all(_may_be(a, b) for a, b in zip(boxes[:2], scores, strict=False))
        fits = fits and (is_one or _may_be(boxes[2], scores[2])) and all(_may_be(a, 1) for a in scores[3:])
        if fits and len(input_shapes) == 3:
            anchors = input_shapes[2]
            fits = len(anchors) == 3 and _may_be(anchors[1], boxes[1]) and _may_be(anchors[2], 4)
            fits = fits and (_may_be(anchors[0], 1) or _may_be(anchors[0], boxes[0]))
        if not fits:
            raise ShapeError(
                "boxes, scores and anchors do not go together",
                expected="[N, A, 4], [N, A, 1, 4] or [N, A, C, 4]; [N, A, C]; perhaps [1, A, 4] or [N, A, 4]",
                got=", ".join(str(list(map(str, shape))).replace("'", "") for shape in input_shapes),
            )

    def _least(self, dtype: np.dtype[Any]) -> Any:
        """The threshold, as it is compared with the scores."""
        threshold = np.float32(self.score_threshold)
        if self.is_raw:
            with np.errstate(divide="ignore", invalid="ignore"):
                threshold = np.log(threshold / (1 - threshold)) if threshold > 0 else np.float32(LOWEST)
        return threshold.astype(dtype)

    def detections(self, inputs: Sequence[Array], image: int) -> tuple[Array, Array, Array]:
        """Places, classes and corners of the boxes of an image that are kept, the best first."""
        boxes, scores = inputs[:2]
        places, classes = self._candidates(scores[image].reshape(scores.shape[1:3]))
        own = boxes[image, places, classes if boxes.shape[2] > 1 else 0] if boxes.ndim == 4 else boxes[image, places]
        anchors = None if len(inputs) < 3 else inputs[2][image if len(inputs[2]) > 1 else 0, places]
        corners = self._corners(own, anchors)
        kept = self._kept(corners, classes)
        return places[kept], classes[kept], corners[kept]

    def _candidates(self, scores: Array) -> tuple[Array, Array]:
        """Place and class of the scores that count, the best first."""
        flat, least = scores.ravel().astype(np.float32), np.float32(self._least(scores.dtype))
        found = np.flatnonzero(flat >= least)
        if 0 <= self.background < scores.shape[1]:
            found = found[found % scores.shape[1] != self.background]
        values = flat[found]
        if len(found) > CANDIDATES:
            last = np.partition(values, -CANDIDATES)[-CANDIDATES]
            taken = values > last
            taken[np.flatnonzero(values == last)[: CANDIDATES - np.count_nonzero(taken)]] = True
            found, values = found[taken], values[taken]
        found = found[np.argsort(-values, kind="stable")]
        return found // max(scores.shape[1], 1), found % max(scores.shape[1], 1)

    def _corners(self, boxes: Array, anchors: Array | None) -> Array:
        if anchors is not None and not self.is_centred:
            boxes = _ordered(boxes) + _ordered(anchors)
        elif anchors is not None:
            middle, size = boxes[:, :2] * anchors[:, 2:] + anchors[:, :2], anchors[:, 2:] * np.exp(boxes[:, 2:])
            boxes = np.concatenate([middle, size], axis=1)
        if not self.is_centred:
            return boxes
        half = boxes[:, 2:] * boxes.dtype.type(0.5)
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)

    def _kept(self, corners: Array, classes: Array) -> Array:
        """Which of the boxes, the best of which comes first, overlap no better one."""
        boxes, overlap = _ordered(corners), np.float32(self.iou_threshold)
        areas, dropped = _areas(boxes), np.zeros(len(boxes), bool)
        rivals = np.zeros_like(classes) if self.is_agnostic else classes
        members: dict[int, Array] = {}
        kept: list[int] = []
        for best, kind in enumerate(rivals.tolist()):
            if dropped[best]:
                continue
            kept.append(best)
            if len(kept) == self.most:
                break
            if kind not in members:
                members[kind] = np.flatnonzero(rivals == kind)
            near = members[kind] = members[kind][members[kind] > best]
            low = np.maximum(boxes[near, :2], boxes[best, :2])
            shared = _areas(np.concatenate([low, np.minimum(boxes[near, 2:], boxes[best, 2:])], axis=1))
            union = areas[near] + areas[best] - shared
            part = np.divide(shared, union, out=np.zeros_like(shared), where=(shared > 0) & (union > 0))
            dropped[near[part >= overlap]] = True
        return np.asarray(kept, np.int64)


class EfficientNMS(Suppression):
    """boxes [N, A, 4], [N, A, 1, 4] or [N, A, C, 4], scores [N, A, C] and perhaps anchors [1 or N, A, 4], float32 or
    float16, to num_detections int32 [N, 1], detection_boxes [N, K, 4], detection_scores [N, K] and detection_classes
    int32 [N, K], where K is `max_output_boxes`. What is behind the detections is zero.

    Scores of at least `score_threshold` count, the best 4096 of an image; of equal ones those that come first. A box
    is dropped where its intersection over union with a better one (of its class, unless `class_agnostic`) is at least
    `iou_threshold`. `score_activation`: the scores are put through a sigmoid, which the threshold means. `box_coding`:
    0 for two corners, 1 for centre and size; results are corners. With anchors, boxes are offsets from them.
    `background_class` never counts. Calculated in the dtype of the boxes, areas in float32, as TensorRT does.
    """

    def __init__(
        self,
        score_threshold: float = 0.5,
        iou_threshold: float = 0.5,
        max_output_boxes: int = 100,
        background_class: int = -1,
        score_activation: int = 0,
        class_agnostic: int = 0,
        box_coding: int = 0,
    ) -> None:
        if max_output_boxes < 1 or box_coding not in (0, 1):
            raise InvalidArgumentError(
                "a field is out of range",
                expected="max_output_boxes of 1 or more, box_coding 0 (corners) or 1 (centre and size)",
                got=f"max_output_boxes {max_output_boxes}, box_coding {box_coding}",
            )
        self.score_threshold, self.iou_threshold = float(score_threshold), float(iou_threshold)
        self.most, self.background = int(max_output_boxes), int(background_class)
        self.is_raw, self.is_agnostic = bool(score_activation), bool(class_agnostic)
        self.is_centred = bool(box_coding)

    def get_output_shape(self, input_shapes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        self.check_shapes(input_shapes)
        n = input_shapes[0][0]
        return [(n, 1), (n, self.most, 4), (n, self.most), (n, self.most)]

    def get_output_dtypes(self, input_dtypes: Sequence[Any]) -> list[Any]:
        return [DataType.INT32, input_dtypes[0], input_dtypes[0], DataType.INT32]

    def supports_format_combination(self, pos: int, in_out: Sequence[PluginTensorDesc], num_inputs: int) -> bool:
        if pos - num_inputs in (0, 3):
            return in_out[pos].type == DataType.INT32
        return in_out[pos].type in FLOATS and in_out[pos].type == in_out[0].type

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], stream: int) -> None:
        scores = inputs[1]
        for output in outputs:
            output[...] = 0
        for image in range(len(scores)):
            places, classes, corners = self.detections(inputs, image)
            chosen = scores[image].reshape(scores.shape[1:3])[places, classes]
            if self.is_raw:
                with np.errstate(over="ignore"):
                    chosen = 1 / (1 + np.exp(-chosen))
            count = len(places)
            outputs[0][image] = count
            outputs[1][image, :count] = corners
            outputs[2][image, :count] = chosen
            outputs[3][image, :count] = classes

    def cuda_source(self, inputs: Sequence[PluginTensorDesc], outputs: Sequence[PluginTensorDesc]) -> CudaSource:
        boxes, scores = inputs[0], inputs[1]
        has_anchors = len(inputs) > 2
        n, places, classes = scores.dims[:3]
        numbers = (
            *(places, classes, self.most, self.background),
            *(int(self.is_raw), int(self.is_agnostic), int(self.is_centred)),
            int(len(boxes.dims) == 4 and boxes.dims[2] > 1),
            int(has_anchors and inputs[2].dims[0] > 1),
            *(float(self._least(scores.dtype)), self.iou_threshold),
        )
        head = (
            f"#define HALF {int(boxes.type == DataType.HALF)}\n#define THREADS {THREADS}\n#define SCORES {CANDIDATES}\n"
        )
        entry = "efficient_nms_of_anchors" if has_anchors else "efficient_nms"
        return CudaSource(head + _kernel(), entry, grid=n, block=THREADS, arguments=numbers)


@functools.cache
def _kernel() -> str:
    return Path(__file__).with_suffix(".cu").read_text()


def _may_be(extent: Any, other: Any) -> bool:
    """Whether two extents can be the same: those that only a call tells can."""
    return not (isinstance(extent, int) and isinstance(other, int)) or extent == other


def _ordered(boxes: Array) -> Array:
    """With the lesser corner first."""
    low, high = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(low, high), np.maximum(low, high)], axis=1)


def _areas(boxes: Array) -> Array:
    size = (boxes[:, 2:] - boxes[:, :2]).astype(np.float32)
    return np.where((size > 0).all(axis=1), size[:, 0] * size[:, 1], np.float32(0))
