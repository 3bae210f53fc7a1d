"""Asin."""

from tests.conformance.case import unary

OP = "Asin"
CASES = unary(-1, 1)
