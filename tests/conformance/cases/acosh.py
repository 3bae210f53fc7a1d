"""Acosh."""

from tests.conformance.case import unary

OP = "Acosh"
CASES = unary(1, 9)
