"""GlobalMaxPool."""

from tests.conformance.case import Array, case, normal


def greatest(x: Array) -> Array:
    return x.max(tuple(range(2, x.ndim)), keepdims=True)


OP = "GlobalMaxPool"
CASES = [
    case("plain", normal(2, 3, 8, 9), reference=greatest),
    case("odd_channels", normal(1, 17, 7, 7), reference=greatest),
    case("many_channels", normal(1, 64, 7, 7), reference=greatest),
    case("one_pixel", normal(2, 5, 1, 1), reference=greatest),
    case("one_dimension", normal(2, 3, 9), reference=greatest),
    case("three_dimensions", normal(1, 2, 3, 4, 5), reference=greatest),
    case("no_images", normal(0, 3, 4, 4), reference=greatest),
]
