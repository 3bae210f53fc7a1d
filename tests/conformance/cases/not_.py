"""Not."""

from tests.conformance.case import BOOL, case, truths

OP = "Not"
CASES = [
    case("rank_3", truths(2, 3, 5), dtypes=BOOL),
    case("rank_0", truths(), dtypes=BOOL),
    case("empty", truths(0, 4), dtypes=BOOL),
    case("odd_length", truths(1027), dtypes=BOOL),
]
