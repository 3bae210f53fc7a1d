"""Shape."""

from tests.conformance.case import case, normal

OP = "Shape"
DTYPES = ("float32", "int64", "bool")
CASES = [
    case("all", normal(2, 3, 4), dtypes=DTYPES),
    case("from", normal(2, 3, 4), dtypes=DTYPES, start=1),
    case("negative_start", normal(2, 3, 4), dtypes=DTYPES, start=-1),
    case("to", normal(2, 3, 4), dtypes=DTYPES, end=-1),
    case("between", normal(2, 3, 4, 5), dtypes=DTYPES, start=1, end=3),
    case("clamped", normal(2, 3), dtypes=DTYPES, start=-9, end=9),
    case("nothing", normal(2, 3), dtypes=DTYPES, start=2, end=1),
    case("rank_0", normal(), dtypes=DTYPES),
    case("empty", normal(0, 3), dtypes=DTYPES),
]
