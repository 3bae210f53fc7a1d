"""Squeeze."""

from tests.conformance.case import BOOL, INTS, case, ints, normal

OP = "Squeeze"
CASES = [
    case("one", normal(1, 3, 1, 5), ints(0)),
    case("two", normal(1, 3, 1, 5), ints(0, 2)),
    case("negative", normal(3, 1), ints(-1)),
    case("all", normal(1, 3, 1)),
    case("to_rank_0", normal(1, 1)),
    case("empty", normal(0, 1), ints(1)),
    case("any_dtype", normal(1, 3), ints(0), dtypes=[*INTS, *BOOL]),
    case("attribute", normal(1, 3, 1), dtypes=["float32"], opset=11, axes=[0, 2]),
]
