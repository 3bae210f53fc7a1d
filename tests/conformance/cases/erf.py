"""Erf."""

import math

import numpy as np

from tests.conformance.case import unary

OP = "Erf"
CASES = unary(edges=[4.0, -4.0, 10.0, 1e-6], reference=np.vectorize(math.erf, otypes=[np.float64]))
