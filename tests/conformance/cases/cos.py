"""Cos."""

from tests.conformance.case import unary

OP = "Cos"
CASES = unary(-20, 20)
