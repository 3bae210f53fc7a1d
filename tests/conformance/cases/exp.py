"""Exp."""

from tests.conformance.case import case, unary, uniform

OP = "Exp"
CASES = [
    *unary(edges=[88.0, -87.0, -104.0, 89.0]),
    case("denormal_results", uniform(-103, -88, 50), dtypes=["float64"]),
]
