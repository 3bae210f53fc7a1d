"""Trilu."""

from tests.conformance.case import BOOL, INTS, Given, case, constant, exact, normal


def diagonal(k: int) -> Given:
    return constant(exact(k, "int64"))


OP = "Trilu"
CASES = [
    case("upper", normal(4, 5)),
    case("lower", normal(5, 4), upper=0),
    case("moved", normal(4, 5), diagonal(1)),
    case("moved_back", normal(4, 5), diagonal(-2), upper=0),
    case("far", normal(4, 5), diagonal(9)),
    case("far_lower", normal(4, 5), diagonal(9), upper=0),
    case("batch", normal(2, 3, 4, 4)),
    case("any_dtype", normal(4, 5), dtypes=[*INTS, *BOOL]),
]
