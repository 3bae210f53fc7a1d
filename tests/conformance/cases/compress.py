"""Compress."""

from tests.conformance.case import ANY, F32, case, exact, normal, truths

OP = "Compress"
CASES = [
    case("rows", normal(5, 7), truths(5), axis=0, dtypes=ANY),
    case("columns", normal(5, 7), truths(7), axis=-1, dtypes=F32),
    case("flat", normal(3, 4), truths(12), dtypes=F32, dynamic=False),
    case("short_condition", normal(3, 9), exact([False, True, True], "bool"), axis=1, dtypes=F32),
    case("nothing", normal(3, 2), exact([False, False], "bool"), axis=1, dtypes=F32),
]
