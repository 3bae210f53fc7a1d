"""Silu."""

import numpy as np

from tests.conformance.case import Array, unary


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


OP = "Silu"
CASES = unary(limit=True, edges=[40.0, -40.0, 89.0, -89.0], opset=0, reference=silu)
