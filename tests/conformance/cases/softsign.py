"""Softsign."""

import numpy as np

from tests.conformance.case import unary

OP = "Softsign"
CASES = unary(reference=lambda x: np.where(np.isinf(x), np.nan, x / (1 + abs(x))))
