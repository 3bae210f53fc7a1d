"""ThresholdedRelu."""

from tests.conformance.case import case, exact, normal, unary

OP = "ThresholdedRelu"
CASES = [
    *unary(),
    case("alpha", normal(3, 5), alpha=0.25),
    case("at_the_threshold", exact([0.5, 0.25, 0.75]), alpha=0.5),
]
