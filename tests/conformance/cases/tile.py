"""Tile."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, ints, normal

OP = "Tile"
CASES = [
    case("rows", normal(2, 3), ints(3, 1)),
    case("both", normal(2, 3), ints(2, 4)),
    case("images", normal(1, 2, 3, 4), ints(2, 1, 1, 2)),
    case("once", normal(2, 3), ints(1, 1)),
    case("never", normal(2, 3), ints(0, 2)),
    case("vector", normal(5), ints(3)),
    case("any_dtype", normal(2, 3), ints(2, 2), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
