"""Identity."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, normal, unary

OP = "Identity"
CASES = [
    *unary(),
    case("any_dtype", normal(2, 3), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
