"""Clip."""

from tests.conformance.case import INTS, case, normal, scalar, special, uniform

OP = "Clip"
CASES = [
    case("no_bounds", normal(3, 5)),
    case("rank_0", normal(), scalar(-0.5), scalar(0.5)),
    case("empty", normal(0, 4), scalar(-0.5), scalar(0.5)),
    case("both", normal(3, 37), scalar(-0.5), scalar(0.75)),
    case("relu6", uniform(-9, 9, 2, 17, 3, 3), scalar(0.0), scalar(6.0)),
    case("low_alone", normal(3, 5), scalar(-0.5)),
    case("high_alone", normal(3, 5), None, scalar(0.5)),
    case("bounds_at_run_time", normal(3, 5), uniform(-1, 0), uniform(0, 1)),
    case("low_at_run_time", normal(3, 5), uniform(-1, 0)),
    case("high_at_run_time", normal(3, 5), None, uniform(0, 1)),
    case("edges", special(), scalar(-1.0), scalar(1.0)),
    case("low_above_high", normal(3, 5), scalar(1.0), scalar(-1.0)),
    case("ints", normal(3, 37), scalar(-3), scalar(4), dtypes=[*INTS, "int8"]),
    case("attributes", normal(3, 5), dtypes=["float32"], opset=10, min=-0.5, max=0.5),
]
