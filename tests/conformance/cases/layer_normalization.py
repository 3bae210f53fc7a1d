"""LayerNormalization."""

import numpy as np

from tests.conformance.case import SINGLE, Array, case, constant, normal, uniform


def normalized(x: Array, scale: Array, bias: Array | float = 0.0, axis: int = -1, epsilon: float = 1e-5) -> Array:
    """In numpy, because ONNX's evaluator computes in float32."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + epsilon) * scale + bias


OP = "LayerNormalization"
OPTIONS = {"sums": True, "dtypes": SINGLE, "slack": 2, "reference": normalized}
CASES = [
    case("plain", normal(2, 5, 64), constant(normal(64)), constant(normal(64)), **OPTIONS),
    case("odd", normal(3, 37), constant(normal(37)), constant(normal(37)), **OPTIONS),
    case("no_bias", normal(3, 37), constant(normal(37)), **OPTIONS),
    case("two_axes", normal(2, 4, 5), constant(normal(4, 5)), constant(normal(4, 5)), **OPTIONS, axis=1),
    case("negative_axis", normal(2, 4, 5), constant(normal(4, 5)), constant(normal(4, 5)), **OPTIONS, axis=-2),
    case("epsilon", normal(3, 16), constant(normal(16)), constant(normal(16)), **OPTIONS, epsilon=0.1),
    case(
        "far_from_zero",
        uniform(999, 1001, 3, 64),
        constant(normal(64)),
        sums=True,
        dtypes=["float32"],
        slack=500,
        reference=normalized,
    ),
    case("at_run_time", normal(3, 16), normal(16), normal(16), **OPTIONS),
    case("no_rows", normal(0, 16), constant(normal(16)), constant(normal(16)), **OPTIONS),
]
