"""Hardmax."""

from tests.conformance.case import case, exact, normal

OP = "Hardmax"
CASES = [
    case("last", normal(3, 37)),
    case("middle", normal(2, 5, 4), axis=1),
    case("first", normal(5, 3), axis=0),
    case("ties", exact([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0]])),
    case("no_rows", normal(0, 3)),
]
