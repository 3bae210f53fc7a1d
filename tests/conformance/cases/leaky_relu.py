"""LeakyRelu."""

from tests.conformance.case import SINGLE, case, normal, unary

OP = "LeakyRelu"
CASES = [
    *unary(dtypes=SINGLE),
    case("alpha", normal(3, 5), dtypes=SINGLE, alpha=0.1),
    case("negative_alpha", normal(3, 5), dtypes=SINGLE, alpha=-0.5),
    case("alpha_above_one", normal(3, 5), dtypes=SINGLE, alpha=2.0),
]
