"""SpaceToDepth."""

from tests.conformance.case import BOOL, INTS, case, normal

OP = "SpaceToDepth"
CASES = [
    case("plain", normal(2, 3, 6, 8), blocksize=2, dynamic=False),
    case("three", normal(1, 2, 6, 9), blocksize=3, dynamic=False),
    case("one", normal(1, 4, 2, 3), blocksize=1),
    case("no_images", normal(0, 3, 6, 8), blocksize=2, dynamic=False),
    case("any_dtype", normal(1, 3, 4, 4), blocksize=2, dynamic=False, dtypes=[*INTS, *BOOL]),
]
