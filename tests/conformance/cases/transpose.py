"""Transpose."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, normal

OP = "Transpose"
CASES = [
    case("reversed", normal(2, 3, 4)),
    case("matrix", normal(17, 33), perm=[1, 0]),
    case("to_nhwc", normal(2, 17, 3, 5), perm=[0, 2, 3, 1]),
    case("to_nchw", normal(2, 3, 5, 17), perm=[0, 3, 1, 2]),
    case("heads", normal(2, 7, 4, 8), perm=[0, 2, 1, 3]),
    case("last_two", normal(2, 3, 9, 5), perm=[0, 1, 3, 2]),
    case("five", normal(2, 3, 2, 5, 3), perm=[4, 0, 3, 1, 2]),
    case("identity", normal(2, 3), perm=[0, 1]),
    case("ones", normal(1, 5, 1), perm=[2, 1, 0]),
    case("vector", normal(5)),
    case("rank_0", normal()),
    case("empty", normal(0, 3, 2), perm=[2, 0, 1]),
    case("any_dtype", normal(3, 4, 5), dtypes=[*INTS, *NARROW_INTS, *BOOL], perm=[1, 2, 0]),
]
