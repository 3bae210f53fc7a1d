"""CenterCropPad."""

from tests.conformance.case import ANY, F32, case, ints, normal

OP = "CenterCropPad"
CASES = [
    case("crop", normal(20, 10, 3), ints(10, 7, 3), dtypes=ANY, dynamic=False),
    case("pad", normal(10, 7, 3), ints(20, 10, 3), dtypes=F32, dynamic=False),
    case("both", normal(9, 4, 3), ints(4, 9, 3), dtypes=F32),
    case("axes", normal(9, 8, 3), ints(4, 11), axes=[0, 1], dtypes=F32),
    case("negative_axes", normal(9, 8, 3), ints(4, 11), axes=[-3, -2], dtypes=F32),
    case("to_nothing", normal(3, 4), ints(0, 4), dtypes=F32),
]
