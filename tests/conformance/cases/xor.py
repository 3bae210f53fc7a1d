"""Xor."""

from tests.conformance.case import BOOL, binary, truths

OP = "Xor"
CASES = binary(truths, truths, dtypes=BOOL)
