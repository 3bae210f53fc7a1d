"""NonZero."""

from tests.conformance.case import BOOL, F32, INTS, case, exact, normal, truths

OP = "NonZero"
CASES = [
    case("matrix", truths(5, 7), dtypes=BOOL),
    case("vector", normal(37), dtypes=INTS),
    case("four_axes", truths(2, 3, 4, 5), dtypes=F32),
    case("none", exact([[0.0, 0.0]]), dtypes=F32),
    case("signs_and_nan", exact([0.0, -0.0, float("nan"), -1.0]), dtypes=F32),
    case("empty", normal(0, 3), dtypes=F32),
]
