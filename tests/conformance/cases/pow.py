"""Pow."""

import numpy as np

from tests.conformance.case import INTS, binary, case, constant, exact, nonzero, normal, scalar, special, uniform

OP = "Pow"
CASES = [
    *binary(left=lambda *s: uniform(0.1, 3, *s), slack=4),
    case("square", normal(3, 5), scalar(2.0)),
    case("cube", normal(3, 5), scalar(3.0)),
    case("root", uniform(0, 9, 3, 5), scalar(0.5)),
    case("inverse", nonzero(3, 5), scalar(-1.0)),
    case("negative_base_odd_power", exact([-2.0, -1.5, 0.0, 2.0]), exact([3.0, 2.0, 3.0, -1.0])),
    case("negative_base_fraction", exact([-2.0, 4.0]), exact([0.5, 0.5])),
    case("to_zero", exact([0.0, 2.0, -3.0]), scalar(0.0)),
    case("edges", special(), scalar(2.0)),
    case("ints", normal(3, 5), exact([2, 3, 0, 1, 2]), dtypes=INTS),
    # NumPy refuses them; PyTorch gives these.
    case(
        "ints_to_less_than_0",
        exact([0, 1, -1, -1, 2, -3]),
        exact([-1, -2, -3, -2, -1, -1]),
        dtypes=INTS,
        reference=lambda x, y: np.array([0, 1, -1, 1, 0, 0], x.dtype),
    ),
    case("int_exponent", uniform(0.5, 2, 3, 5), constant(exact(3, "int64")), dtypes=["float32"]),
]
