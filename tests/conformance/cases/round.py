"""Round."""

from tests.conformance.case import unary

OP = "Round"
CASES = unary(edges=[0.5, 3.5, -3.5, 4.5, 8388609.0])
