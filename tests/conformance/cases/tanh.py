"""Tanh."""

from tests.conformance.case import unary

OP = "Tanh"
CASES = unary(edges=[10.0, -10.0, 100.0])
