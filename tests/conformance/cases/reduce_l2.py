"""ReduceL2."""

from tests.conformance.case import INTS, case, ints, normal, reduction, special

OP = "ReduceL2"
CASES = [
    *reduction(sums=True),
    case("ints", normal(3, 7), ints(1), dtypes=INTS),
    case("edges", special(), ints(0)),
]
