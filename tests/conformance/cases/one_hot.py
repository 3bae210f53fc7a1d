"""OneHot."""

import numpy as np

from tests.conformance.case import INTS, Array, Given, case, constant, exact, indices


def one_hot(places: Array, depth: Array, values: Array, axis: int = -1) -> Array:
    """In numpy: a place out of range is nowhere, a negative one counts from the back."""
    count = int(np.asarray(depth).reshape(()))
    places = np.asarray(places, np.int64)
    counted = np.where(places < 0, places + count, places)
    hot = counted[..., None] == np.arange(count)
    return np.moveaxis(np.where(hot, values[1], values[0]), -1, axis)


def depth(count: int) -> Given:
    return constant(exact(count, "int64"))


OP = "OneHot"
OFF_ON = constant(exact([0, 1]))
CASES = [
    case("last", indices(0, 5, 3), depth(5), OFF_ON, reference=one_hot),
    case("first", indices(0, 5, 2, 3), depth(5), OFF_ON, axis=0, reference=one_hot),
    case("middle", indices(0, 5, 2, 3), depth(5), OFF_ON, axis=1, reference=one_hot),
    case("negative", indices(-5, 5, 7), depth(5), OFF_ON, reference=one_hot),
    case("out_of_range", exact([0, 5, -6, 4], "int64"), depth(5), OFF_ON, reference=one_hot),
    case(
        "values",
        indices(0, 5, 3),
        depth(5),
        exact([-2, 3]),
        dynamic=False,
        dtypes=["float32", *INTS],
        reference=one_hot,
    ),
]
