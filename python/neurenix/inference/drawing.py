"""Boxes and masks on pictures, with numpy alone; text by Pillow where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurenix.inference.detections import Results

Picture = NDArray[np.uint8]

#: Colours of classes, one after another.
COLOURS = np.array(
    [(255, 56, 56), (72, 249, 10), (0, 116, 255), (255, 178, 29), (146, 52, 255), (0, 212, 187), (255, 55, 199),
     (203, 210, 23), (52, 69, 147), (255, 112, 31)],
    np.uint8,
)  # fmt: skip


def boxes(picture: Picture, results: Results, width: int = 2) -> Picture:
    """A copy of the picture with the boxes, and where Pillow is there their names and confidences."""
    found = picture.copy()
    height, right = found.shape[:2]
    for x1, y1, x2, y2, _, number in results.boxes.data:
        colour = COLOURS[int(number) % len(COLOURS)]
        left, top, end, bottom = (round(float(v)) for v in (x1, y1, x2, y2))
        left, end = max(left, 0), min(end, right)
        top, bottom = max(top, 0), min(bottom, height)
        found[top : top + width, left:end] = found[max(bottom - width, 0) : bottom, left:end] = colour
        found[top:bottom, left : left + width] = found[top:bottom, max(end - width, 0) : end] = colour
    return _labelled(found, results)


def _labelled(picture: Picture, results: Results) -> Picture:
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        return picture
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    for x1, y1, _, _, confidence, number in results.boxes.data:
        colour = tuple(map(int, COLOURS[int(number) % len(COLOURS)]))
        text, place = f"{results.name(number)} {confidence:.2f}", (float(x1) + 2, max(float(y1) - 12, 0))
        draw.rectangle(draw.textbbox(place, text), fill=colour)
        draw.text(place, text, fill=(255, 255, 255))
    return np.asarray(image)


def mask(picture: Picture, scores: Any, opacity: float = 0.5) -> Picture:
    """A copy of the picture with its classes in colour; class 0 is the background.

    `scores`: labels [height, width], or scores [classes, height, width] (of one class: above 0); of any size.
    """
    found = np.asarray(scores)
    if found.ndim == 3:
        found = found[0] > 0 if found.shape[0] == 1 else found.argmax(0)
    height, width = picture.shape[:2]
    rows = np.arange(height) * found.shape[0] // height
    columns = np.arange(width) * found.shape[1] // width
    labels = found[rows[:, None], columns].astype(np.int64)
    colours = COLOURS[(labels - 1) % len(COLOURS)]
    mixed = picture * (1 - opacity) + colours * opacity
    return np.where((labels > 0)[..., None], mixed, picture).astype(np.uint8)
