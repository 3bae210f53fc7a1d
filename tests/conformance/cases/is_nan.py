"""IsNaN."""

from tests.conformance.case import case, normal, special

OP = "IsNaN"
CASES = [
    case("edges", special()),
    case("rank_0", normal()),
    case("empty", normal(0, 3)),
]
