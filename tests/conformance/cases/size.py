"""Size."""

from tests.conformance.case import case, normal

OP = "Size"
DTYPES = ("float32", "int64", "bool")
CASES = [
    case("plain", normal(2, 3, 4), dtypes=DTYPES),
    case("rank_0", normal(), dtypes=DTYPES),
    case("empty", normal(0, 3), dtypes=DTYPES),
]
