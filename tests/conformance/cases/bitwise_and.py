"""BitwiseAnd."""

from tests.conformance.case import INTS, NARROW_INTS, case, exact, normal

OP = "BitwiseAnd"
CASES = [
    case("plain", normal(3, 37), normal(3, 37), dtypes=[*INTS, *NARROW_INTS]),
    case("row", normal(3, 5), normal(5), dtypes=INTS),
    case("both_ways", normal(3, 1), normal(5), dtypes=INTS),
    case("rank_0", normal(), normal(), dtypes=INTS),
    case("extremes", exact([-128, 127, -1, 0]), exact([-1, 85, 127, -128]), dtypes=["int8"]),
]
