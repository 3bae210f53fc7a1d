"""Softplus."""

import numpy as np

from tests.conformance.case import Array, unary


def softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


OP = "Softplus"
CASES = unary(edges=[20.0, 100.0, -20.0, -100.0], reference=softplus)
