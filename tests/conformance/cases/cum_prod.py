"""CumProd."""

from typing import Any

import numpy as np

from tests.conformance.case import FLOATS, INTS, Array, Case, Given, case, constant, exact, normal, uniform


def products(x: Array, axis: Array, exclusive: int = 0, reverse: int = 0) -> Array:
    """numpy's products, along the axis the other way round for `reverse`, one element later for `exclusive`."""
    along = int(axis)
    x = np.flip(x, along) if reverse else x
    found = np.cumprod(x, along, dtype=x.dtype)
    if exclusive and x.shape[along]:
        first = np.ones_like(np.take(x, [0], along))
        found = np.concatenate([first, np.delete(found, -1, along)], along)
    return np.flip(found, along) if reverse else found


def of(name: str, x: Given, axis: int, **options: Any) -> Case:
    options = {"dtypes": FLOATS, "sums": True} | options
    return case(name, x, constant(exact(axis, "int64")), opset=26, reference=products, **options)


OP = "CumProd"
CASES = [
    of("vector", uniform(0.5, 1.5, 37), 0),
    of("rows", uniform(-1.5, 1.5, 3, 17), 1),
    of("columns", normal(5, 4), 0),
    of("middle", normal(2, 9, 4), 1),
    of("negative_axis", normal(2, 9, 4), -1),
    of("exclusive", normal(3, 9), 1, exclusive=1),
    of("reverse", normal(3, 9), 1, reverse=1),
    of("reverse_exclusive", normal(3, 9), 1, reverse=1, exclusive=1),
    of("ints", normal(3, 9), 1, dtypes=INTS, sums=False),
    of("one", normal(3, 1), 1),
    of("no_rows", normal(0, 3), 1),
    case(
        "axis_of_the_call",
        normal(3, 9),
        exact(1, "int64"),
        dtypes=["float32"],
        opset=26,
        reference=products,
        sums=True,
        dynamic=False,
    ),
]
