"""Reciprocal."""

from tests.conformance.case import unary

OP = "Reciprocal"
CASES = unary(0.1, 9)
