"""Flatten."""

from tests.conformance.case import BOOL, INTS, case, normal

OP = "Flatten"
CASES = [
    case("default", normal(2, 3, 4, 5)),
    case("axis_0", normal(2, 3, 4), axis=0),
    case("axis_2", normal(2, 3, 4, 5), axis=2),
    case("last", normal(2, 3, 4), axis=3),
    case("negative", normal(2, 3, 4), axis=-1),
    case("vector", normal(5), axis=0),
    case("empty", normal(0, 3, 4), reference=lambda x: x.reshape(0, 12)),
    case("any_dtype", normal(2, 3, 4), dtypes=[*INTS, *BOOL]),
]
