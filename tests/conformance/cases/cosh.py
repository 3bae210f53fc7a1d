"""Cosh."""

from tests.conformance.case import unary

OP = "Cosh"
CASES = unary()
