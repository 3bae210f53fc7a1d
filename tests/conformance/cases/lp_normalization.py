"""LpNormalization."""

import numpy as np

from tests.conformance.case import Array, case, exact, normal


def normalized(x: Array, axis: int = -1, p: int = 2) -> Array:
    """In numpy, because ONNX's evaluator computes in float32 and divides 0 by 0."""
    norm = np.linalg.norm(x, p, axis, keepdims=True)
    return np.where(norm == 0, 0, x / norm)


OP = "LpNormalization"
CASES = [
    case("plain", normal(3, 37), sums=True, reference=normalized),
    case("first", normal(5, 3), axis=0, sums=True, reference=normalized),
    case("absolute", normal(2, 17, 4), axis=1, p=1, sums=True, reference=normalized),
    case("zeros", exact([[0.0, 0.0], [3.0, 4.0]]), reference=normalized),
]
