"""Max."""

from tests.conformance.case import INTS, ORDERED_INTS, binary, case, exact, normal, special

OP = "Max"
CASES = [
    *binary(),
    case("edges", special(), special()),
    case("edges_with_zero", special(), exact(0.0)),
    case("ints", normal(2, 3, 5), normal(5), dtypes=[*INTS, *ORDERED_INTS]),
    case("three", normal(2, 3, 5), normal(5), normal(3, 1)),
    case("one", normal(2, 3, 5)),
]
