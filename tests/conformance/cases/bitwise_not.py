"""BitwiseNot."""

from tests.conformance.case import INTS, NARROW_INTS, case, exact, normal

OP = "BitwiseNot"
CASES = [
    case("plain", normal(3, 37), dtypes=[*INTS, *NARROW_INTS]),
    case("rank_0", normal(), dtypes=INTS),
    case("extremes", exact([-128, 127, -1, 0]), dtypes=["int8"]),
]
