"""SpaceToDepth."""

from tests.conformance.case import BOOL, INTS, Array, case, normal


def by_channel(x: Array, blocksize: int, mode: str) -> Array:
    n, c, h, w = x.shape
    split = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    return split.transpose(0, 1, 3, 5, 2, 4).reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


OP = "SpaceToDepth"
CASES = [
    case("plain", normal(2, 3, 6, 8), blocksize=2, dynamic=False),
    case("three", normal(1, 2, 6, 9), blocksize=3, dynamic=False),
    case("one", normal(1, 4, 2, 3), blocksize=1),
    case("no_images", normal(0, 3, 6, 8), blocksize=2, dynamic=False),
    case("by_channel", normal(2, 3, 6, 8), blocksize=2, mode="CRD", dynamic=False, opset=28, reference=by_channel),
    case("any_dtype", normal(1, 3, 4, 4), blocksize=2, dynamic=False, dtypes=[*INTS, *BOOL]),
]
