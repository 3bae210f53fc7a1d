"""Atanh."""

from tests.conformance.case import unary

OP = "Atanh"
CASES = unary(-0.98, 0.98)
