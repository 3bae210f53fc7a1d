"""ReduceL2."""

from tests.conformance.case import case, ints, reduction, special

OP = "ReduceL2"
CASES = [
    *reduction(sums=True),
    case("edges", special(), ints(0)),
]
