"""Tan."""

from tests.conformance.case import unary

OP = "Tan"
CASES = unary(-1.4, 1.4)
