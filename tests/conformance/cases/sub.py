"""Sub."""

from tests.conformance.case import INTS, NARROW_INTS, binary, case, exact, normal, special, uniform

OP = "Sub"
CASES = [
    *binary(),
    case("edges", special(), uniform(-2, 2, 17)),
    case("edges_with_themselves", special(), special()),
    case("ints", normal(2, 3, 5), normal(5), dtypes=[*INTS, *NARROW_INTS]),
    case("wraps", exact([127, -128, 100]), exact([1, 1, 100]), dtypes=["int8"]),
    case("one_tensor_twice_as_long", normal(2, 1), normal(1, 6)),
]
