"""Gelu."""

import dataclasses
import math

import numpy as np

from tests.conformance.case import Array, unary


def gelu(x: Array) -> Array:
    """The definition; of minus infinity it is not a number."""
    return x / 2 * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


def approximated(x: Array, approximate: str) -> Array:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


OP = "Gelu"
EDGES = [10.0, -10.0, 100.0, -100.0]
CASES = [
    *unary(limit=True, edges=EDGES, reference=gelu, slack=2),
    *(
        dataclasses.replace(case, name=f"tanh_{case.name}")
        for case in unary(limit=True, edges=EDGES, reference=approximated, slack=2, approximate="tanh")
    ),
]
