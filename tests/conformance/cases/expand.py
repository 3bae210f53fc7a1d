"""Expand."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, ints, normal

OP = "Expand"
CASES = [
    case("rows", normal(1, 3), ints(4, 3)),
    case("columns", normal(4, 1), ints(4, 33)),
    case("new_axes", normal(3), ints(2, 5, 3)),
    case("both_ways", normal(3, 1), ints(2, 1, 6)),
    case("ones_keep", normal(2, 3), ints(1, 1), dynamic=False),
    case("from_rank_0", normal(), ints(2, 3)),
    case("to_nothing", normal(1, 3), ints(0, 3)),
    case("any_dtype", normal(1, 3), ints(4, 3), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
