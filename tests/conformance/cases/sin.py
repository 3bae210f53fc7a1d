"""Sin."""

from tests.conformance.case import unary

OP = "Sin"
CASES = unary(-20, 20)
