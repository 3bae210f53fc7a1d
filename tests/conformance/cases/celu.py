"""Celu."""

from tests.conformance.case import case, normal, unary

OP = "Celu"
CASES = [
    *unary(),
    case("alpha", normal(3, 5), alpha=2.5),
    case("small_alpha", normal(3, 5), alpha=0.125),
]
