"""GroupNormalization."""

import numpy as np

from tests.conformance.case import SINGLE, Array, case, constant, normal


def normalized(x: Array, scale: Array, bias: Array, num_groups: int, epsilon: float = 1e-5) -> Array:
    """In numpy, because ONNX's evaluator computes in float32."""
    groups = x.reshape(x.shape[0], num_groups, -1)
    mean, var = groups.mean(2, keepdims=True), groups.var(2, keepdims=True)
    y = ((groups - mean) / np.sqrt(var + epsilon)).reshape(x.shape)
    channels = (1, -1, *[1] * (x.ndim - 2))
    return y * scale.reshape(channels) + bias.reshape(channels)


OP = "GroupNormalization"
OPTIONS = {"sums": True, "dtypes": SINGLE, "slack": 2, "reference": normalized}
CASES = [
    case("plain", normal(2, 6, 4, 5), constant(normal(6)), constant(normal(6)), **OPTIONS, num_groups=2),
    case("one_group", normal(2, 6, 4, 5), constant(normal(6)), constant(normal(6)), **OPTIONS, num_groups=1),
    case("a_group_each", normal(1, 6, 3, 3), constant(normal(6)), constant(normal(6)), **OPTIONS, num_groups=6),
    case("wide", normal(1, 32, 7, 7), constant(normal(32)), constant(normal(32)), **OPTIONS, num_groups=8),
    case("epsilon", normal(1, 4, 3, 3), constant(normal(4)), constant(normal(4)), **OPTIONS, num_groups=2, epsilon=0.1),
    case("one_dimension", normal(2, 4, 9), constant(normal(4)), constant(normal(4)), **OPTIONS, num_groups=2),
]
