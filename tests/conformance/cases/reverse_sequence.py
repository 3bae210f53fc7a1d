"""ReverseSequence."""

import numpy as np

from tests.conformance.case import ANY, F32, Array, case, exact, normal


def reverse(x: Array, lengths: Array, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """One sequence at a time."""
    y = np.array(x)
    for n, length in enumerate(lengths):
        at = (slice(None, length), n) if time_axis == 0 else (n, slice(None, length))
        y[at] = x[at][::-1]
    return y


OP = "ReverseSequence"
CASES = [
    case("time_first", normal(5, 3, 2), exact([5, 1, 3], np.int64), dtypes=ANY, reference=reverse, dynamic=False),
    case(
        "batch_first",
        normal(3, 5, 2, 2),
        exact([0, 4, 5], np.int64),
        batch_axis=0,
        time_axis=1,
        dtypes=F32,
        reference=reverse,
        dynamic=False,
    ),
    case("matrix", normal(4, 4), exact([1, 2, 3, 4], np.int64), dtypes=F32, reference=reverse, dynamic=False),
]
