"""Concat."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, constant, normal

OP = "Concat"
CASES = [
    case("channels", normal(2, 3, 4, 5), normal(2, 5, 4, 5), axis=1),
    case("many_channels", normal(1, 17, 4, 4), normal(1, 16, 4, 4), normal(1, 1, 4, 4), axis=1),
    case("negative_axis", normal(2, 3), normal(2, 4), axis=-1),
    case("first_axis", normal(2, 3), normal(1, 3), normal(4, 3), axis=0),
    case("middle", normal(3, 2, 5), normal(3, 7, 5), axis=1),
    case("one_input", normal(2, 3), axis=0),
    case("an_empty_input", normal(2, 0), normal(2, 3), axis=1),
    case("all_empty", normal(0, 2), normal(0, 3), axis=1),
    case("vectors", normal(3), normal(1), axis=0),
    case("with_a_constant", normal(2, 3), constant(normal(2, 2)), normal(2, 1), axis=1),
    case("any_dtype", normal(2, 3), normal(2, 4), dtypes=[*INTS, *NARROW_INTS, *BOOL], axis=1),
]
