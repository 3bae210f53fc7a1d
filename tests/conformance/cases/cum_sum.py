"""CumSum."""

from tests.conformance.case import INTS, Given, case, constant, exact, normal


def scalar_axis(axis: int) -> Given:
    return constant(exact(axis, "int64"))


OP = "CumSum"
CASES = [
    case("vector", normal(37), scalar_axis(0), sums=True),
    case("rows", normal(3, 37), scalar_axis(1), sums=True),
    case("columns", normal(5, 4), scalar_axis(0), sums=True),
    case("middle", normal(2, 9, 4), scalar_axis(1), sums=True),
    case("negative_axis", normal(2, 9, 4), scalar_axis(-1), sums=True),
    case("exclusive", normal(3, 9), scalar_axis(1), sums=True, exclusive=1),
    case("reverse", normal(3, 9), scalar_axis(1), sums=True, reverse=1),
    case("reverse_exclusive", normal(3, 9), scalar_axis(1), sums=True, reverse=1, exclusive=1),
    case("ints", normal(3, 9), scalar_axis(1), dtypes=INTS),
    case("one", normal(3, 1), scalar_axis(1)),
    case("no_rows", normal(0, 3), scalar_axis(1)),
]
