"""ScatterND."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, exact, normal, uniform

ROWS = exact([[3], [0]], "int64")
ELEMENTS = exact([[0, 1], [2, 2], [3, 0]], "int64")
TWICE = exact([[1], [1], [0]], "int64")

OP = "ScatterND"
CASES = [
    case("rows", normal(4, 3), ROWS, normal(2, 3), dynamic=False),
    case("elements", normal(4, 3), ELEMENTS, normal(3), dynamic=False),
    case("negative", normal(4, 3), exact([[-1], [-4]], "int64"), normal(2, 3), dynamic=False),
    case("add", normal(4, 3), TWICE, normal(3, 3), reduction="add", dynamic=False, slack=4),
    case("mul", normal(4, 3), TWICE, uniform(0.5, 2, 3, 3), reduction="mul", dynamic=False, slack=4),
    case("max", normal(4, 3), TWICE, normal(3, 3), reduction="max", dynamic=False),
    case("min", normal(4, 3), TWICE, normal(3, 3), reduction="min", dynamic=False),
    case("any_dtype", normal(4, 3), ROWS, normal(2, 3), dynamic=False, dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
