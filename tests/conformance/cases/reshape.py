"""Reshape."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, ints, normal

OP = "Reshape"
CASES = [
    case("plain", normal(2, 3, 4), ints(4, 6)),
    case("the_rest", normal(2, 3, 4), ints(2, -1)),
    case("copies", normal(2, 3, 4), ints(0, 12)),
    case("copies_and_the_rest", normal(2, 3, 4, 5), ints(0, 0, -1)),
    case("to_a_vector", normal(2, 3, 4), ints(-1)),
    case("to_rank_0", normal(1, 1), ints()),
    case("from_rank_0", normal(), ints(1, 1)),
    case("empty", normal(0, 3), ints(3, 0), allowzero=1),
    case("empty_copied", normal(0, 3), ints(0, 3)),
    case("split_channels", normal(2, 16, 3, 5), ints(2, 4, 4, 3, 5)),
    case("any_dtype", normal(2, 3, 4), ints(-1, 2), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
