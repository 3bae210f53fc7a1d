"""ScatterElements."""

from tests.conformance.case import BOOL, INTS, NARROW_INTS, case, exact, normal, uniform

PLACES = exact([[0, 3, 1], [2, 0, 4]], "int64")
TWICE = exact([[0, 0, 1], [2, 0, 2]], "int64")

OP = "ScatterElements"
CASES = [
    case("rows", normal(5, 3), PLACES, normal(2, 3), dynamic=False),
    case("columns", normal(2, 5), PLACES, normal(2, 3), axis=1, dynamic=False),
    case("negative_axis", normal(2, 5), PLACES, normal(2, 3), axis=-1, dynamic=False),
    case("negative_indices", normal(2, 5), exact([[-1, -5, 1]], "int64"), normal(1, 3), axis=1, dynamic=False),
    case("the_last_stays", normal(3, 3), TWICE, normal(2, 3), dynamic=False, dtypes=["float32"]),
    case("add", normal(3, 3), TWICE, normal(2, 3), reduction="add", dynamic=False, slack=4),
    case("mul", normal(3, 3), TWICE, uniform(0.5, 2, 2, 3), reduction="mul", dynamic=False, slack=4),
    case("max", normal(3, 3), TWICE, normal(2, 3), reduction="max", dynamic=False),
    case("min", normal(3, 3), TWICE, normal(2, 3), reduction="min", dynamic=False),
    case("nowhere", normal(3), exact([], "int64"), normal(0), dynamic=False, dtypes=["float32"]),
    case("any_dtype", normal(5, 3), PLACES, normal(2, 3), dynamic=False, dtypes=[*INTS, *NARROW_INTS, *BOOL]),
]
