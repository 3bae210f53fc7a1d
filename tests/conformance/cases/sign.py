"""Sign."""

from tests.conformance.case import INTS, case, normal, unary

OP = "Sign"
CASES = [
    *unary(),
    case("ints", normal(2, 3, 5), dtypes=["int8", *INTS]),
    case("unsigned", normal(2, 3, 5), dtypes=["uint8"]),
]
