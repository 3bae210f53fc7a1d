"""Sqrt."""

from tests.conformance.case import unary

OP = "Sqrt"
CASES = unary(0, 9)
