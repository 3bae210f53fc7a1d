"""ReduceLogSum."""

from tests.conformance.case import reduction, uniform

OP = "ReduceLogSum"
CASES = reduction(lambda *shape: uniform(0.5, 2, *shape), sums=True, empty=False)
