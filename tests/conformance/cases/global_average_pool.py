"""GlobalAveragePool."""

from tests.conformance.case import case, normal

OP = "GlobalAveragePool"
CASES = [
    case("plain", normal(2, 3, 8, 9), sums=True),
    case("odd_channels", normal(1, 17, 7, 7), sums=True),
    case("many_channels", normal(1, 64, 7, 7), sums=True),
    case("one_pixel", normal(2, 5, 1, 1), sums=True),
    case("one_dimension", normal(2, 3, 9), sums=True),
    case("three_dimensions", normal(1, 2, 3, 4, 5), sums=True),
    case("no_images", normal(0, 3, 4, 4), reference=lambda x: x[:, :, :1, :1]),
]
