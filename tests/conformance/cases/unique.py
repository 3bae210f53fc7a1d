"""Unique."""

from tests.conformance.case import F32, INTS, case, exact, normal

OP = "Unique"
CASES = [
    case("flat", normal(4, 9), outputs=4, dtypes=INTS),
    case("first_seen_first", exact([2.0, 1.0, 1.0, 3.0, 4.0, 3.0]), outputs=4, sorted=0, dtypes=F32),
    case("rows", exact([[1, 0, 0], [1, 0, 0], [2, 3, 4]]), outputs=4, axis=0, dtypes=("float32", "int64")),
    case("columns", exact([[1, 0, 0, 1], [1, 2, 2, 1]]), outputs=4, axis=-1, dtypes=F32),
]
