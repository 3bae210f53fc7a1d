"""TopK."""

from tests.conformance.case import INTS, case, distinct, exact, ints, normal

OP = "TopK"
CASES = [
    case("largest", distinct(3, 37), ints(5), outputs=2),
    case("smallest", distinct(3, 37), ints(5), outputs=2, largest=0),
    case("middle", distinct(2, 9, 4), ints(3), outputs=2, axis=1),
    case("first", distinct(9, 4), ints(2), outputs=2, axis=0),
    case("all", distinct(3, 7), ints(7), outputs=2, dynamic=False),
    case("one", distinct(3, 7), ints(1), outputs=2),
    case("none", distinct(3, 7), ints(0), outputs=2),
    case("ties", exact([[1.0, 3.0, 3.0, 2.0, 3.0]]), ints(3), outputs=2),
    case("ints", distinct(3, 11), ints(4), outputs=2, dtypes=INTS),
    case("no_rows", normal(0, 7), ints(2), outputs=2),
]
