"""Unsqueeze."""

from tests.conformance.case import BOOL, INTS, case, ints, normal

OP = "Unsqueeze"
CASES = [
    case("front", normal(3, 4), ints(0)),
    case("end", normal(3, 4), ints(2)),
    case("negative", normal(3, 4), ints(-1)),
    case("several", normal(3, 4), ints(0, 3)),
    case("unordered", normal(3, 4), ints(3, 0)),
    case("from_rank_0", normal(), ints(0, 1)),
    case("empty", normal(0, 4), ints(1)),
    case("any_dtype", normal(3), ints(0), dtypes=[*INTS, *BOOL]),
    case("attribute", normal(3, 4), dtypes=["float32"], opset=11, axes=[1]),
]
