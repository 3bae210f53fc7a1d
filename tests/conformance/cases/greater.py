"""Greater."""

from tests.conformance.case import INTS, ORDERED_INTS, binary, case, exact, normal, special

OP = "Greater"
CASES = [
    *binary(),
    case("edges", special(), exact(0.0)),
    case("edges_with_themselves", special(), special()),
    case("ints", normal(4, 33), normal(33), dtypes=[*INTS, *ORDERED_INTS]),
    case("large_ints", exact([2**53, 2**53 + 1]), exact([2**53 + 1, 2**53 + 1]), dtypes=["int64"]),
]
