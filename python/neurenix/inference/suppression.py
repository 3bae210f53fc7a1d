"""Suppression of boxes as layers behind a detector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.inference.adding import Adder
from neurenix.inference.detections import layout
from neurenix.names import hint

_END = 2**31 - 1


@dataclass(frozen=True)
class SuppressionLayers:
    """What `postprocess=dict(nms=dict(...))` may say.

    - `confidence`: boxes of at least that (above 0, at most 1) count.
    - `iou`: a box goes where a likelier one of its class covers it by more than that, as intersection over union
      (`torchvision.ops.nms`; TensorRT's plugin drops a box at that very share too).
    - `max_boxes`: rows of the result; of the boxes that count the best 4,096 are looked at.
    - `classes`: how many the model knows, where the shape of its output does not tell.

    An output [batch, boxes, 5 + classes] (middle, size, objectness, classes: YOLOv5) or [batch, 4 + classes, boxes]
    (middle, size, classes: YOLOv8 and later) becomes float32 [batch, max_boxes, 6]: x1, y1, x2, y2, confidence and
    class, the likeliest first, and zeros behind the last one. Each box has its likeliest class.
    """

    confidence: float = 0.25
    iou: float = 0.45
    max_boxes: int = 300
    classes: int | None = None

    @classmethod
    def of(cls, given: Any) -> SuppressionLayers:
        """From what a caller gives; raises `InvalidArgumentError` for unknown words and values."""
        known = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping):
            raise InvalidArgumentError("postprocess: nms is a dict", expected=", ".join(known), got=repr(given))
        for name in given:
            if name not in known:
                raise InvalidArgumentError(
                    f"postprocess: nms has no {name!r}", expected=", ".join(known), hint=hint(name, known)
                )
        found = cls(**given)
        for name in ("confidence", "iou"):
            value = getattr(found, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
                raise InvalidArgumentError(f"postprocess: {name} is a share", expected="above 0, to 1", got=repr(value))
        for name in ("max_boxes", "classes"):
            value = getattr(found, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InvalidArgumentError(f"postprocess: {name} is a number", expected="1, 2, ...", got=repr(value))
        return found

    def behind(self, adder: Adder, name: str, output: Tensor) -> Tensor:
        """Adds the layers, behind an output of this name.

        Raises `ShapeError` where it is no output of a detector that is known, or suppressed already.
        """
        boxes, scores = self._apart(adder, name, output)
        # Of other classes than a box's likeliest nothing is left to count.
        best = adder.add("ReduceMax", scores, axes=[2], keepdims=1)
        scores = adder.add("Where", adder.add("Equal", scores, best), scores, adder.constant(0, np.float32))
        _, corners, chances, numbers = adder.plugin(
            "EfficientNMS_TRT", [boxes, scores], score_threshold=float(self.confidence), iou_threshold=self._overlap(),
            max_output_boxes=self.max_boxes, background_class=-1, score_activation=0, class_agnostic=0, box_coding=1,
        )  # fmt: skip
        numbers = adder.add("Cast", numbers, to="float32")
        columns = [adder.add("Unsqueeze", one, axes=[2]) for one in (chances, numbers)]
        return adder.add("Concat", corners, *columns, axis=2)

    def _overlap(self) -> float:
        """The plugin drops a box at its threshold: the next number makes that of what is above `iou` alone."""
        return float(np.nextafter(np.float32(self.iou), np.float32(2)))

    def _apart(self, adder: Adder, name: str, output: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes [batch, boxes, 4] and scores [batch, boxes, classes] in float32."""
        shape = tuple(output.shape)
        sizes = tuple(size for size in shape[1:] if isinstance(size, int))
        found = layout(sizes, self.classes) if len(sizes) == len(shape) - 1 else None
        if len(shape) != 3 or found not in ("objectness", "channels"):
            raise ShapeError(
                "nms is for outputs of detectors that are known", tensor=name,
                expected="[batch, boxes, 5 + classes] or [batch, 4 + classes, boxes]", got=str(list(shape)),
                hint="postprocess=dict(nms=dict(classes=...)) says how many classes there are"
                if self.classes is None else f"neither is of {self.classes} classes here",
            )  # fmt: skip
        x = adder.add("Cast", output, to="float32")
        if found == "channels":
            x = adder.add("Transpose", x, perm=[0, 2, 1])
            return adder.between(x, 0, 4, 2), adder.between(x, 4, _END, 2)
        scores = adder.add("Mul", adder.between(x, 5, _END, 2), adder.between(x, 4, 5, 2))
        return adder.between(x, 0, 4, 2), scores
