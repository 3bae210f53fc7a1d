"""ReduceMax."""

from tests.conformance.case import INTS, case, exact, ints, normal, reduction, special, uniform

OP = "ReduceMax"
CASES = [
    *reduction(empty=False),
    case("edges", special(), ints(0)),
    case("infinite", exact([[float("-inf"), float("-inf")], [float("inf"), float("-inf")]]), ints(1)),
    case("all_negative", uniform(-9, -1, 3, 37), ints(1)),
    case("ints", normal(3, 5, 4), ints(1), dtypes=[*INTS, "int8", "uint8"]),
]
