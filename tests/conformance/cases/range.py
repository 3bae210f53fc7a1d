"""Range."""

from tests.conformance.case import INTS, case, scalar

OP = "Range"
DTYPES = ("float32", *INTS)
CASES = [
    case("up", scalar(0), scalar(5), scalar(1), dtypes=DTYPES),
    case("steps", scalar(1), scalar(10), scalar(3), dtypes=DTYPES),
    case("down", scalar(5), scalar(-4), scalar(-2), dtypes=DTYPES),
    case("nothing", scalar(5), scalar(5), scalar(1), dtypes=DTYPES),
    case("the_wrong_way", scalar(5), scalar(9), scalar(-1), dtypes=DTYPES),
    case("fractions", scalar(0.5), scalar(2.25), scalar(0.25), dtypes=["float32"]),
]
