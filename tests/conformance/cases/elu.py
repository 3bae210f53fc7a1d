"""Elu."""

from tests.conformance.case import case, normal, unary

OP = "Elu"
CASES = [
    *unary(),
    case("alpha", normal(3, 5), alpha=2.5),
]
