"""NonMaxSuppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.case import F32, Given, case, constant, exact, uniform

OP = "NonMaxSuppression"


def boxes(count: int, batches: int = 1) -> Given:
    """Boxes of sides between 0.5 and 2 in a square of 4, corners in any order."""

    def make(rng: np.random.Generator, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        low, sides = rng.uniform(0, 4, (batches, count, 2)), rng.uniform(0.5, 2, (batches, count, 2))
        pairs = [low, low + sides]
        return np.concatenate(pairs if rng.integers(2) else pairs[::-1], -1).astype(dtype)

    return Given(make)


def limits(most: int, overlap: float, *least: float) -> list[Given]:
    """How many boxes, how much they may overlap, and the least score."""
    given = [exact([most], "int64"), exact([overlap], "float32"), *(exact([score], "float32") for score in least)]
    return [constant(each) for each in given]


CASES = [
    case("few_of_many", boxes(40), uniform(0, 1, 1, 1, 40), *limits(10, 0.3, 0.2), dtypes=F32),
    case("classes", boxes(20, 2), uniform(0, 1, 2, 3, 20), *limits(5, 0.5), dtypes=F32),
    case("no_box_is_wanted", boxes(9), uniform(0, 1, 1, 2, 9), *limits(0, 0.5), dtypes=F32),
    case("centres", boxes(30), uniform(0, 1, 1, 1, 30), *limits(30, 0.4), center_point_box=1, dtypes=F32),
    case("none_good_enough", boxes(9), uniform(0, 1, 1, 1, 9), *limits(9, 0.4, 2.0), dtypes=F32),
    case(
        "equal_boxes", exact(np.ones((1, 4, 1)) * [0.0, 0, 1, 1]), uniform(0, 1, 1, 1, 4), *limits(4, 0.5), dtypes=F32
    ),
]
