"""HardSigmoid."""

from tests.conformance.case import SINGLE, case, normal, unary, uniform

OP = "HardSigmoid"
CASES = [
    *unary(dtypes=SINGLE),
    case("alpha_beta", normal(3, 5), dtypes=SINGLE, alpha=0.5, beta=0.25),
    case("torch_slope", uniform(-5, 5, 3, 5), dtypes=SINGLE, alpha=1 / 6),
]
