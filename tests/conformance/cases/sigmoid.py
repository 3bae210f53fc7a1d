"""Sigmoid."""

from tests.conformance.case import unary

OP = "Sigmoid"
CASES = unary(edges=[40.0, -40.0, 89.0, -89.0])
