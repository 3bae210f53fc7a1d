"""Mod."""

import numpy as np

from tests.conformance.case import INTS, ORDERED_INTS, case, exact, nonzero, normal, special, uniform

OP = "Mod"
CASES = [
    case("ints", normal(4, 33), nonzero(33), dtypes=[*INTS, *ORDERED_INTS]),
    case("ints_fmod", normal(4, 33), nonzero(33), dtypes=INTS, fmod=1),
    case("floats", exact([5.5, -5.5, 5.5, -5.5, 0.0]), exact([2.0, 2.0, -2.0, -2.0, 3.0]), fmod=1),
    case("random", uniform(-9, 9, 3, 37), nonzero(37), fmod=1),
    case("edges", special(), exact(2.0), fmod=1),
    case("by_edges", exact(1.5), special(), fmod=1, reference=lambda a, b, fmod: np.fmod(a, b)),
    case("both_ways", normal(3, 1), nonzero(4), dtypes=INTS),
]
