"""ArgMin."""

from tests.conformance.case import INTS, case, distinct, exact, normal

OP = "ArgMin"
CASES = [
    case("last", distinct(3, 37), axis=-1),
    case("first", distinct(5, 3, 4), axis=0),
    case("middle", distinct(2, 17, 4), axis=1),
    case("flat", distinct(2, 17, 4), axis=1, keepdims=0),
    case("channels", distinct(1, 21, 4, 5), axis=1, keepdims=0, dtypes=["float32"]),
    case("ties", exact([[1.0, 2.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]]), axis=1),
    case("ties_last", exact([[1.0, 2.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]]), axis=1, select_last_index=1),
    case("infinite", exact([[float("-inf"), float("inf"), 1.0], [float("-inf")] * 3]), axis=1),
    case("one", normal(3, 1), axis=1),
    case("ints", distinct(3, 11), axis=1, dtypes=[*INTS, "int8"]),
    case("no_rows", normal(0, 3), axis=1),
]
