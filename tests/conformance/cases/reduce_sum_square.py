"""ReduceSumSquare."""

from tests.conformance.case import INTS, case, ints, normal, reduction, special

OP = "ReduceSumSquare"
CASES = [
    *reduction(sums=True),
    case("edges", special(), ints(0)),
    case("ints", normal(3, 5, 4), ints(1), dtypes=INTS, reference=lambda x, _: (x * x).sum(1, x.dtype, keepdims=True)),
]
