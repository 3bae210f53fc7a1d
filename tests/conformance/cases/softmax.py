"""Softmax."""

import numpy as np

from tests.conformance.case import Array, case, exact, normal, uniform


def flattened(x: Array, axis: int) -> Array:
    """Before opset 13: over all axes from `axis` on."""
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return (powers / powers.sum(1, keepdims=True)).reshape(x.shape)


OP = "Softmax"
CASES = [
    case("last", normal(3, 37)),
    case("middle", normal(2, 17, 5), axis=1),
    case("first", normal(5, 3), axis=0),
    case("channels", normal(2, 21, 4, 5), axis=1),
    case("attention", normal(2, 4, 9, 9)),
    case("long", normal(2, 1027)),
    case("one", normal(4, 1)),
    case("large", uniform(80, 100, 3, 9), slack=4),
    case("very_negative", uniform(-1000, -900, 3, 9), dtypes=["float32", "float64"], slack=4),
    case("masked", exact([[1.0, float("-inf"), 2.0], [0.5, 0.25, float("-inf")]])),
    case("nan", exact([[1.0, float("nan"), 2.0], [0.0, 1.0, 2.0]])),
    case("vector", normal(7), axis=-1),
    case("empty", normal(0, 3)),
    case("old_meaning", normal(2, 3, 4), dtypes=["float32"], opset=11, axis=1, reference=flattened),
]
