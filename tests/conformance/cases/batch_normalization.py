"""BatchNormalization."""

from tests.conformance.case import SINGLE, case, constant, normal, uniform


def parameters(channels: int):
    """scale, bias, mean and variance, as a trained model holds them."""
    given = normal(channels), normal(channels), normal(channels), uniform(0.5, 2, channels)
    return [constant(each) for each in given]


OP = "BatchNormalization"
OPTIONS = {"sums": True, "dtypes": SINGLE}
CASES = [
    case("plain", normal(2, 3, 4, 5), *parameters(3), **OPTIONS),
    case("odd_channels", normal(1, 17, 3, 5), *parameters(17), **OPTIONS),
    case("epsilon", normal(2, 3, 4, 5), *parameters(3), **OPTIONS, epsilon=0.1),
    case("matrix", normal(5, 7), *parameters(7), **OPTIONS, dynamic=False),
    case("one_dimension", normal(2, 4, 9), *parameters(4), **OPTIONS),
    case("three_dimensions", normal(1, 4, 2, 3, 5), *parameters(4), **OPTIONS),
    case("no_images", normal(0, 3, 4, 4), *parameters(3), dtypes=SINGLE),
    case(
        "at_run_time", normal(2, 3, 4, 5), normal(3), normal(3), normal(3), uniform(0.5, 2, 3), **OPTIONS, dynamic=False
    ),
]
