"""PRelu."""

from tests.conformance.case import INTS, case, constant, normal, special, uniform

OP = "PRelu"
CASES = [
    case("one_slope", normal(3, 37), constant(uniform(0, 1, 1))),
    case("channels", normal(2, 17, 4, 5), constant(uniform(0, 1, 17, 1, 1))),
    case("all", normal(3, 5), constant(uniform(-1, 1, 3, 5)), dynamic=False),
    case("at_run_time", normal(3, 5), uniform(-1, 1, 5)),
    case("edges", special(), constant(uniform(0, 1, 1))),
    case("ints", normal(3, 5), normal(5), dtypes=INTS),
    case("empty", normal(0, 5), constant(uniform(0, 1, 5)), dynamic=False),
]
