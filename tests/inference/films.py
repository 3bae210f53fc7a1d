"""Films that tests render: a bright square that walks over a dark ground, a frame for each number."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from neurenix.inference import VideoWriter

SIZE, SIDE = (96, 128), 24


def place(number: int) -> tuple[int, int]:
    """Top and left of the square."""
    return 10 + 3 * (number % 20), 8 + 4 * (number % 20)


def picture(number: int, size: tuple[int, int] = SIZE) -> np.ndarray[Any, Any]:
    """A frame."""
    found = np.full((*size, 3), 20, np.uint8)
    top, left = place(number)
    found[top : top + SIDE, left : left + SIDE] = (240, 200, 220)
    return found


def render(path: Path, count: int, size: tuple[int, int] = SIZE, rate: int = 25) -> None:
    """Writes a film."""
    with VideoWriter(path, size, Fraction(rate)) as writer:
        for number in range(count):
            writer.write(picture(number, size))
