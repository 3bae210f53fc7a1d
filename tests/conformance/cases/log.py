"""Log."""

from tests.conformance.case import unary

OP = "Log"
CASES = unary(0.01, 9)
