"""Relu."""

from tests.conformance.case import INTS, case, normal, unary

OP = "Relu"
CASES = [
    *unary(),
    case("ints", normal(2, 3, 5), dtypes=["int8", "int16", *INTS]),
]
