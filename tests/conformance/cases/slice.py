"""Slice."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, ints, normal

OP = "Slice"
CASES = [
    case("one_axis", normal(5, 6), ints(1), ints(4), ints(0)),
    case("default_axes", normal(5, 6), ints(1, 2), ints(4, 5)),
    case("steps", normal(9, 8), ints(1, 0), ints(8, 8), ints(0, 1), ints(3, 2)),
    case("negative_ends", normal(5, 6), ints(1), ints(-1), ints(1)),
    case("negative_starts", normal(5, 6), ints(-3), ints(2**62), ints(1)),
    case("backwards", normal(7), ints(-1), ints(-(2**62)), ints(0), ints(-1)),
    case("backwards_by_two", normal(3, 8), ints(6), ints(1), ints(1), ints(-2)),
    case("clamped", normal(4, 5), ints(-99), ints(99), ints(0)),
    case("nothing", normal(4, 5), ints(3), ints(1), ints(0)),
    case("past_the_end", normal(4, 5), ints(9), ints(12), ints(0)),
    case("negative_axis", normal(3, 4, 5), ints(1), ints(3), ints(-2)),
    case("channels", normal(2, 17, 3, 5), ints(8), ints(17), ints(1)),
    case("half_of_the_channels", normal(1, 32, 4, 4), ints(16), ints(32), ints(1)),
    case("focus", normal(1, 3, 8, 8), ints(0, 1), ints(2**62, 2**62), ints(2, 3), ints(2, 2)),
    case("empty_input", normal(0, 4), ints(1), ints(3), ints(1)),
    case("any_dtype", normal(5, 6), ints(1), ints(4), ints(0), dtypes=[*INTS, *NARROW_INTS, *BOOL]),
    case("attributes", normal(5, 6), dtypes=["float32"], opset=9, starts=[1], ends=[-1], axes=[1]),
]
