"""InstanceNormalization."""

from tests.conformance.case import SINGLE, case, constant, normal

OP = "InstanceNormalization"
OPTIONS = {"sums": True, "dtypes": SINGLE, "slack": 2}
CASES = [
    case("plain", normal(2, 3, 4, 5), constant(normal(3)), constant(normal(3)), **OPTIONS),
    case("odd_channels", normal(1, 17, 3, 5), constant(normal(17)), constant(normal(17)), **OPTIONS),
    case("epsilon", normal(2, 3, 4, 5), constant(normal(3)), constant(normal(3)), **OPTIONS, epsilon=0.1),
    case("one_dimension", normal(2, 4, 9), constant(normal(4)), constant(normal(4)), **OPTIONS),
    case("three_dimensions", normal(1, 4, 2, 3, 5), constant(normal(4)), constant(normal(4)), **OPTIONS),
    case("at_run_time", normal(2, 3, 4, 5), normal(3), normal(3), **OPTIONS, dynamic=False),
]
