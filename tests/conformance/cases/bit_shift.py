"""BitShift."""

from tests.conformance.case import case, indices, normal

OP = "BitShift"
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
CASES = [
    case("left", normal(3, 5), normal(5), dtypes=UNSIGNED, direction="LEFT"),
    case("right", normal(3, 5), normal(5), dtypes=UNSIGNED, direction="RIGHT"),
    case("both_ways", normal(3, 1), normal(5), dtypes=["uint32"], direction="LEFT"),
    case("rank_0", normal(), normal(), dtypes=["uint8"], direction="RIGHT"),
    case("far_right", indices(100, 255, 9, dtype="uint8"), normal(9), dtypes=["uint8"], direction="RIGHT"),
]
