"""Div."""

import numpy as np

from tests.conformance.case import INTS, Array, binary, case, exact, nonzero, normal, special

OP = "Div"


def truncated(a: Array, b: Array) -> Array:
    return np.trunc(a.astype(np.float64) / b).astype(a.dtype)


CASES = [
    *binary(right=nonzero),
    case("edges", special(), exact(2.0)),
    case("by_edges", exact(1.0), special()),
    case("zero_by_zero", exact([0.0, -0.0, 1.0, -1.0]), exact([0.0, 0.0, 0.0, -0.0])),
    case("ints_truncate", normal(4, 33), nonzero(33), dtypes=[*INTS, "int8", "uint8"], reference=truncated),
]
