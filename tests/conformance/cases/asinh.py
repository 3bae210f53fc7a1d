"""Asinh."""

from tests.conformance.case import unary

OP = "Asinh"
CASES = unary(edges=[1e4, -1e4])
