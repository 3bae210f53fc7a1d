"""Ceil."""

from tests.conformance.case import unary

OP = "Ceil"
CASES = unary()
