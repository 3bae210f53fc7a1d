"""Where."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, exact, normal, scalar, special, truths

OP = "Where"
CASES = [
    case("same_shape", truths(2, 3, 5), normal(2, 3, 5), normal(2, 3, 5)),
    case("broadcast_condition", truths(3, 1), normal(2, 3, 5), normal(2, 3, 5)),
    case("broadcast_values", truths(2, 3, 5), normal(5), normal(3, 1)),
    case("mask", truths(2, 1, 4, 4), normal(2, 3, 4, 4), scalar(float("-inf"))),
    case("rank_0", truths(), normal(), normal()),
    case("odd_length", truths(1027), normal(1027), normal(1027)),
    case("all_three", truths(4, 1, 1), normal(3, 1), normal(5)),
    case("edges", exact(True, "bool"), special(), special()),
    case("empty", truths(0, 3), normal(0, 3), normal(1, 3)),
    case("any_dtype", truths(3, 4), normal(3, 4), normal(4), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
