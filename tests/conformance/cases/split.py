"""Split."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, ints, normal

OP = "Split"
CASES = [
    case("equal", normal(6, 3), outputs=2, num_outputs=2, dynamic=False),
    case("uneven_last", normal(7, 3), outputs=3, num_outputs=3, dynamic=False),
    case("given", normal(3, 7), ints(2, 4, 1), outputs=3, axis=1),
    case("channels", normal(2, 17, 3, 5), ints(8, 9), outputs=2, axis=1),
    case("halves", normal(1, 32, 4, 4), ints(16, 16), outputs=2, axis=1),
    case("negative_axis", normal(2, 3, 8), ints(4, 4), outputs=2, axis=-1, dynamic=False),
    case("an_empty_part", normal(2, 4), ints(0, 4), outputs=2, axis=1, dynamic=False),
    case("one_part", normal(2, 4), ints(4), outputs=1, axis=1, dynamic=False),
    case("any_dtype", normal(3, 7), ints(2, 5), outputs=2, axis=1, dtypes=[*INTS, *NARROW_INTS, *BOOL]),
    case("attribute", normal(3, 7), outputs=2, axis=1, split=[3, 4], dtypes=["float32"], opset=11),
]
