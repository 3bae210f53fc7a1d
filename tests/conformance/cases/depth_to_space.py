"""DepthToSpace."""

from tests.conformance.case import BOOL, INTS, case, normal

OP = "DepthToSpace"
CASES = [
    case("plain", normal(2, 8, 3, 5), blocksize=2),
    case("column_row_depth", normal(2, 8, 3, 5), blocksize=2, mode="CRD"),
    case("three", normal(1, 18, 2, 3), blocksize=3),
    case("one", normal(1, 4, 2, 3), blocksize=1),
    case("no_images", normal(0, 8, 3, 5), blocksize=2),
    case("any_dtype", normal(1, 8, 3, 5), blocksize=2, dtypes=[*INTS, *BOOL]),
]
