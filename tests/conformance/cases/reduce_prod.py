"""ReduceProd."""

from tests.conformance.case import INTS, case, ints, nonzero, reduction, special, uniform

OP = "ReduceProd"
CASES = [
    *reduction(lambda *shape: uniform(0.9, 1.1, *shape), slack=40),
    case("ints", nonzero(3, 5, 4), ints(1), dtypes=INTS),
    case("edges", special(), ints(0)),
]
