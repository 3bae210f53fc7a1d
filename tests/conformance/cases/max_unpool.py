"""MaxUnpool."""

import numpy as np

from tests.conformance.case import F32, FLOATS, case, exact, ints, normal

OP = "MaxUnpool"
PLACES = exact(np.array([[[[0, 3], [10, 13]], [[17, 18], [24, 31]]]]), np.int64)
HALF = {"kernel_shape": [2, 2], "strides": [2, 2], "dynamic": False}
CASES = [
    case("plain", normal(1, 2, 2, 2), PLACES, dtypes=FLOATS, **HALF),
    case("into_a_shape", normal(1, 2, 2, 2), PLACES, ints(1, 2, 5, 5), dtypes=F32, **HALF),
    case(
        "line", normal(1, 1, 2), exact([[[1, 4]]], np.int64), kernel_shape=[3], strides=[2], dtypes=F32, dynamic=False
    ),
    case(
        "pads",
        normal(1, 1, 2, 2),
        exact([[[[0, 2], [6, 8]]]], np.int64),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        dtypes=F32,
        dynamic=False,
    ),
]
