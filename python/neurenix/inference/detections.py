"""Boxes out of what detectors give, in Ultralytics' conventions: `results.boxes.xyxy`, `.conf`, `.cls`, `.names`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurenix.errors import InvalidArgumentError, ShapeError

Floats = NDArray[np.float32]

#: Boxes that suppression looks at, the likeliest first.
MOST = 30_000
#: Boxes of detectors that suppress on their own; more are boxes of one class and an objectness.
MOST_SUPPRESSED = 300


@dataclass(frozen=True)
class Boxes:
    """Boxes of one picture: `data` has a row for each, x1, y1, x2, y2 in pixels, confidence and class."""

    data: Floats

    @property
    def xyxy(self) -> Floats:
        """Left, top, right and bottom, in pixels of the picture."""
        return self.data[:, :4]

    @property
    def xywh(self) -> Floats:
        """The middle, the width and the height, in pixels."""
        low, high = self.data[:, :2], self.data[:, 2:4]
        return np.concatenate([(low + high) / 2, high - low], 1)

    @property
    def conf(self) -> Floats:
        """Confidences, from 0 to 1."""
        return self.data[:, 4]

    @property
    def cls(self) -> Floats:
        """Numbers of classes, as floats."""
        return self.data[:, 5]

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True)
class Results:
    """What was found in a picture: `boxes`, the picture `orig_img`, and the `names` of classes by number."""

    orig_img: Any
    boxes: Boxes
    names: Mapping[int, str] = field(default_factory=dict)

    def name(self, number: float) -> str:
        """The name of a class, or its number."""
        return self.names.get(int(number), str(int(number)))


def decode(output: Any, classes: int | None = None) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Boxes (x1, y1, x2, y2), confidences and classes of one picture, from what a detector gives for it.

    Three layouts are known: [boxes, 6] (x1, y1, x2, y2, confidence, class: suppressed already), [boxes, 5 + classes]
    (middle, size, objectness, classes: YOLOv5), and [4 + classes, boxes] (middle, size, classes: YOLOv8 and later). A
    first axis of length 1 is dropped. `classes`, where it is known, decides between the last two; else the longer axis
    is that of the boxes.

    Raises `ShapeError` for anything else.
    """
    found = np.asarray(output, np.float32)
    found = found[0] if found.ndim == 3 and found.shape[0] == 1 else found
    known = layout(found.shape, classes)
    if known is None:
        raise ShapeError(
            "this is no output of a detector that is known",
            expected="[boxes, 6], [boxes, 5 + classes] or [4 + classes, boxes]",
            got=str(list(np.shape(output))),
            hint="give a postprocess that makes boxes: [boxes, 6] with x1, y1, x2, y2, confidence and class",
        )
    if known == "suppressed":
        return found[:, :4], found[:, 4], found[:, 5].astype(np.int64)
    if known == "objectness":
        scores = found[:, 5:] * found[:, 4:5]
    else:
        found = found.T
        scores = found[:, 4:]
    half = found[:, 2:4] / 2
    xyxy = np.concatenate([found[:, :2] - half, found[:, :2] + half], 1)
    best = scores.argmax(1)
    return xyxy, scores[np.arange(len(best)), best], best.astype(np.int64)


def layout(shape: tuple[int, ...], classes: int | None) -> str | None:
    """The layout of an output for one picture: "suppressed", "objectness" or "channels", as `decode` says; or none."""
    if len(shape) != 2:
        return None
    rows, columns = shape
    if columns == 6 and (classes != 1 or rows <= MOST_SUPPRESSED):
        return "suppressed"
    if classes is not None and (columns == 5 + classes or rows == 4 + classes):
        return "objectness" if columns == 5 + classes else "channels"
    if rows > columns > 5:
        return "objectness"
    return "channels" if rows > 4 and columns != 5 else None


def suppress(boxes: Floats, scores: Floats, classes: Any, iou: float = 0.45) -> NDArray[np.int64]:
    """The boxes that stay, the likeliest first: of each class those that no likelier one covers by more than `iou`."""
    order = np.argsort(-scores, kind="stable")[:MOST]
    # Boxes of different classes lie apart.
    span = float(np.abs(boxes).max(initial=0)) * 2 + 1
    apart = boxes.astype(np.float64) + (np.asarray(classes, np.float64) * span)[:, None]
    area = (apart[:, 2] - apart[:, 0]).clip(0) * (apart[:, 3] - apart[:, 1]).clip(0)
    kept = []
    while order.size:
        first, rest = order[0], order[1:]
        kept.append(int(first))
        low = np.maximum(apart[first, :2], apart[rest, :2])
        high = np.minimum(apart[first, 2:], apart[rest, 2:])
        common = (high - low).clip(0).prod(1)
        covered = common / np.maximum(area[first] + area[rest] - common, 1e-12)
        order = rest[covered <= iou]
    return np.asarray(kept, np.int64)


def results_of(
    output: Any,
    picture: Any,
    scale: tuple[float, float],
    offset: tuple[float, float],
    names: Mapping[int, str],
    confidence: float = 0.25,
    iou: float = 0.45,
) -> Results:
    """What a detector found, in pixels of the picture.

    `scale` (x, y) and `offset` (x, y) say how the picture was put into the input: input = picture * scale + offset.
    """
    boxes, scores, classes = decode(output, len(names) or None)
    likely = scores >= confidence
    boxes, scores, classes = boxes[likely], scores[likely], classes[likely]
    kept = suppress(boxes, scores, classes, iou)
    boxes = (boxes[kept] - np.tile(offset, 2)) / np.tile(scale, 2)
    height, width = picture.shape[:2]
    boxes = boxes.clip(0, [width, height, width, height])
    data = np.concatenate([boxes, scores[kept, None], classes[kept, None]], 1).astype(np.float32)
    return Results(picture, Boxes(data), names)


def names_of(text: str) -> dict[int, str]:
    """Names of classes by number: JSON, or the dict in Python's notation that Ultralytics writes.

    Raises `InvalidArgumentError` for anything else.
    """
    import ast

    try:
        found = json.loads(text)
    except ValueError:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError) as error:
            raise InvalidArgumentError("the names of classes can't be read", got=text[:60]) from error
    pairs = found.items() if isinstance(found, Mapping) else enumerate(found)
    return {int(number): str(name) for number, name in pairs}
