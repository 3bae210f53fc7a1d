"""ReduceMean."""

import numpy as np

from tests.conformance.case import case, exact, ints, reduction, special

OP = "ReduceMean"
CASES = [
    *reduction(sums=True, slack=2, empty=False),
    case("edges", special(), ints(0)),
    case("equal_numbers", exact(np.full((3, 1000), 0.1)), ints(1), sums=True, slack=2),
]
