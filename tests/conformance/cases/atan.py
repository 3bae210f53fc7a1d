"""Atan."""

from tests.conformance.case import unary

OP = "Atan"
CASES = unary(edges=[1e4, -1e4])
