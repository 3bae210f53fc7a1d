"""Histogram."""

import numpy as np

from tests.conformance.case import Array, case, exact, normal

BINS = 2048


def histogram(x: Array) -> tuple[Array, Array, Array]:
    """The definition: the least power of two that is not below any magnitude, from 2^-100 on."""
    single = x.astype(np.float32)
    magnitudes = np.abs(single)
    if not np.isfinite(single).all():
        return np.zeros(BINS, np.int32), np.array(2**31 - 1, np.int32), np.full(2, np.nan, np.float32)
    most = magnitudes.max(initial=0)
    exponent = -100
    while exponent < 127 and np.ldexp(1.0, exponent) < most:
        exponent += 1
    bins = np.minimum((magnitudes.astype(np.float64) * np.ldexp(BINS, -exponent)).astype(np.int64), BINS - 1)
    counts = np.bincount(bins.reshape(-1), minlength=BINS).astype(np.int32)
    ends = np.array([single.min(initial=np.inf), single.max(initial=-np.inf)], np.float32)
    return counts, np.array(exponent, np.int32), ends


OP = "Histogram"
OPTIONS = {"dtypes": ("float32",), "reference": histogram, "outputs": 3, "opset": 0}
CASES = [
    case("an_image", normal(2, 19, 33, 21), **OPTIONS),
    case("a_matrix", normal(3, 257), **OPTIONS),
    case("powers_of_two", exact(np.ldexp(1.0, np.arange(-110, 110))), **OPTIONS),
    case("behind_relu", exact(np.maximum(np.random.default_rng(3).standard_normal((7, 501)), 0)), **OPTIONS),
    case("zeros", exact(np.zeros((5, 9))), **OPTIONS),
    case("one_number", exact(np.array(-3.0)), **OPTIONS),
    case("no_number", normal(0, 5), **OPTIONS),
    case("next_to_nothing", exact(np.full((2, 9), 1e-39)), **OPTIONS),
    case("the_largest", exact(np.array([np.finfo(np.float32).max, 1.0])), **OPTIONS),
    case("not_a_number", exact(np.array([1.0, np.nan, 2.0])), **OPTIONS),
    case("infinite", exact(np.array([1.0, -np.inf, 2.0])), **OPTIONS),
    case("over_many_blocks", normal(3, 700_001), **OPTIONS),
]
