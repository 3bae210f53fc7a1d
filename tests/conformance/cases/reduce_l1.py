"""ReduceL1."""

from tests.conformance.case import INTS, case, ints, normal, reduction, special

OP = "ReduceL1"
CASES = [
    *reduction(sums=True),
    case("edges", special(), ints(0)),
    case("ints", normal(3, 5, 4), ints(1), dtypes=INTS),
]
