"""HardSwish."""

from tests.conformance.case import SINGLE, unary

OP = "HardSwish"
CASES = unary(edges=[3.0, -3.0], slack=2, dtypes=SINGLE)
