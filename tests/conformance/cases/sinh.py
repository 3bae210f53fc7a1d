"""Sinh."""

from tests.conformance.case import unary

OP = "Sinh"
CASES = unary()
