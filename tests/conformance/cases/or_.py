"""Or."""

from tests.conformance.case import BOOL, binary, truths

OP = "Or"
CASES = binary(truths, truths, dtypes=BOOL)
