"""Selu."""

from tests.conformance.case import case, normal, unary

OP = "Selu"
CASES = [
    *unary(),
    case("alpha_gamma", normal(3, 5), alpha=1.5, gamma=0.75),
]
