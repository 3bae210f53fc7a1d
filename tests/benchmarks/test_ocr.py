"""What benchmarks.decisions_int8 counts."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ocr


def box(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    """Four corners."""
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], float)


def test_repeated_characters_and_gaps_are_no_text() -> None:
    places = np.array([[0, 3, 3, 0, 3, 5], [0, 0, 0, 0, 0, 0]])
    assert ocr.decoded(np.eye(6)[places]) == [[3, 3, 5], []]


def test_boxes_are_found_by_overlap() -> None:
    pytest.importorskip("shapely")
    assert ocr.overlap(box(0, 0, 10, 10), box(0, 0, 10, 5)) == pytest.approx(0.5)
    want = [[(box(0, 0, 100, 10), "a"), (box(0, 20, 100, 30), "b"), (box(0, 40, 100, 50), "c")]]
    # In another order: one a little off, one with another text, one lost, and one that nobody asked for.
    got = [[(box(0, 20, 96, 30), "b"), (box(0, 0, 80, 10), "x"), (box(200, 0, 210, 10), "d")]]
    found = ocr.compared(want, got)
    assert found == {"boxes": 3, "same": 1, "extra": 1, "lines": 1, "least_iou": 0.0}
    assert ocr.compared(want, want) == {"boxes": 3, "same": 3, "extra": 0, "lines": 3, "least_iou": 1.0}
    assert ocr.compared([[]], [[]])["least_iou"] == 1.0
