"""Mish."""

import numpy as np

from tests.conformance.case import Array, unary


def mish(x: Array) -> Array:
    return x * np.tanh(np.logaddexp(0, x))


OP = "Mish"
CASES = unary(limit=True, edges=[20.0, -20.0, 100.0, -100.0], reference=mish, slack=2)
