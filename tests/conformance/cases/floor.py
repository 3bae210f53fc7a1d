"""Floor."""

from tests.conformance.case import unary

OP = "Floor"
CASES = unary()
