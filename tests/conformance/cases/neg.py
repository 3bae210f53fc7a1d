"""Neg."""

from tests.conformance.case import INTS, case, normal, unary

OP = "Neg"
CASES = [
    *unary(),
    case("ints", normal(2, 3, 5), dtypes=[*INTS, "int8", "int16"]),
]
