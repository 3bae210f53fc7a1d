"""LogSoftmax."""

from tests.conformance.case import case, exact, normal, uniform

OP = "LogSoftmax"
CASES = [
    case("last", normal(3, 37), sums=True),
    case("middle", normal(2, 17, 5), axis=1, sums=True),
    case("first", normal(5, 3), axis=0, sums=True),
    case("large", uniform(80, 100, 3, 9), sums=True, slack=4),
    case("very_negative", uniform(-1000, -900, 3, 9), dtypes=["float32", "float64"], sums=True, slack=8),
    case("masked", exact([[1.0, float("-inf"), 2.0], [0.5, 0.25, float("-inf")]]), sums=True),
    case("one", normal(4, 1)),
    case("no_rows", normal(0, 3)),
]
