"""Abs."""

from tests.conformance.case import INTS, case, normal, unary

OP = "Abs"
CASES = [
    *unary(),
    case("ints", normal(2, 3, 5), dtypes=[*INTS, "int8", "int16"]),
    case("unsigned", normal(7), dtypes=["uint8"]),
]
