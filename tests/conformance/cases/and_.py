"""And."""

from tests.conformance.case import BOOL, binary, truths

OP = "And"
CASES = binary(truths, truths, dtypes=BOOL)
