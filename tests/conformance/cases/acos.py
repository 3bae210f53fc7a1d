"""Acos."""

from tests.conformance.case import unary

OP = "Acos"
CASES = unary(-1, 1)
