"""RMSNormalization."""

import numpy as np

from tests.conformance.case import SINGLE, Array, case, constant, normal


def normalized(x: Array, scale: Array, axis: int = -1, epsilon: float = 1e-5) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * scale


OP = "RMSNormalization"
OPTIONS = {"sums": True, "dtypes": SINGLE, "slack": 2, "reference": normalized, "opset": 23}
CASES = [
    case("plain", normal(2, 5, 64), constant(normal(64)), **OPTIONS),
    case("odd", normal(3, 37), constant(normal(37)), **OPTIONS),
    case("two_axes", normal(2, 4, 5), constant(normal(4, 5)), **OPTIONS, axis=1),
    case("epsilon", normal(3, 16), constant(normal(16)), **OPTIONS, epsilon=0.1),
    case("no_rows", normal(0, 16), constant(normal(16)), **OPTIONS),
]
