"""EfficientNMS as ONNX's NonMaxSuppression has it: the indices of the boxes, in a tensor of fixed size.

An example of a plugin for the processor alone: `devices` says so, and a GPU's engine brings its data there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.hardware.tensorrt.enums import DataType
from neurenix.hardware.tensorrt.plugins import PluginTensorDesc
from neurenix.plugins.efficient_nms import FLOATS, Array, Suppression


class EfficientNMSONNX(Suppression):
    """boxes [N, A, 4] or [N, A, 1, 4] and scores [N, A, C], float32 or float16, to indices int32 [N * K, 3] of image,
    class and box, where K is `max_output_boxes_per_class`.

    The rows of an image are its best boxes, at most K of all classes together, and those of the next image follow.
    What is behind the last row repeats it; without any box it is -1. Which boxes are kept, `EfficientNMS` says:
    `center_point_box` is its `box_coding`.
    """

    devices = ("cpu",)

    def __init__(
        self,
        max_output_boxes_per_class: int,
        score_threshold: float = 0.5,
        iou_threshold: float = 0.5,
        center_point_box: int = 0,
    ) -> None:
        if max_output_boxes_per_class < 1 or center_point_box not in (0, 1):
            raise InvalidArgumentError(
                "a field is out of range",
                expected="max_output_boxes_per_class of 1 or more, center_point_box 0 (corners) or 1 (centre and size)",
                got=f"max_output_boxes_per_class {max_output_boxes_per_class}, center_point_box {center_point_box}",
            )
        self.score_threshold, self.iou_threshold = float(score_threshold), float(iou_threshold)
        self.most, self.is_centred = int(max_output_boxes_per_class), bool(center_point_box)

    def get_output_shape(self, input_shapes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        boxes = input_shapes[0]
        if len(input_shapes) != 2 or (len(boxes) == 4 and str(boxes[2]) != "1"):
            raise ShapeError(
                "there are anchors, or boxes of each class",
                expected="boxes [N, A, 4] or [N, A, 1, 4], and scores [N, A, C]",
                got=", ".join(str(list(map(str, shape))).replace("'", "") for shape in input_shapes),
            )
        self.check_shapes(input_shapes)
        return [(boxes[0] * self.most, 3)]

    def get_output_dtypes(self, input_dtypes: Sequence[Any]) -> list[Any]:
        return [DataType.INT32]

    def supports_format_combination(self, pos: int, in_out: Sequence[PluginTensorDesc], num_inputs: int) -> bool:
        if pos == num_inputs:
            return in_out[pos].type == DataType.INT32
        return in_out[pos].type in FLOATS and in_out[pos].type == in_out[0].type

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], stream: int) -> None:
        rows = [np.zeros((0, 3), np.int64)]
        for image in range(len(inputs[0])):
            places, classes, _ = self.detections(inputs, image)
            rows.append(np.stack([np.full_like(places, image), classes, places], axis=1))
        found = np.concatenate(rows)
        outputs[0][...] = found[-1] if len(found) else -1
        outputs[0][: len(found)] = found
