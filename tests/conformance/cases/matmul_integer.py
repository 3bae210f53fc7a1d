"""MatMulInteger."""

import numpy as np

from tests.conformance.case import Array, Given, case, constant
from tests.conformance.cases.dequantize_linear import whole


def product(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    """The definition in 64 bits."""
    left, right = a.astype(np.int64), b.astype(np.int64)
    if a_zero is not None:
        rows = a_zero.astype(np.int64)
        left = left - (rows[:, None] if rows.ndim == 1 and rows.size > 1 else rows)
    if b_zero is not None:
        right = right - b_zero.astype(np.int64)
    return (left @ right).astype(np.int32)


def extreme(value: int, *shape: int) -> Given:
    """The same number everywhere: sums as great as they may be."""
    return Given(lambda rng, dtype: np.full(shape, value).astype(dtype))


def of(dtype: str, given: Given) -> Given:
    """The same in a dtype of its own."""
    return Given(lambda rng, _: given.make(rng, np.dtype(dtype)), given.constant)


OP = "MatMulInteger"
OPTIONS = {"dtypes": ("uint8", "int8"), "reference": product}
CASES = [
    case("plain", whole(5, 7), whole(7, 3), **OPTIONS),
    case("weights", whole(5, 64), of("int8", constant(whole(64, 33))), whole(1), **OPTIONS),
    case("long_sums", whole(3, 3000), constant(whole(3000, 5)), constant(whole()), constant(whole()), **OPTIONS),
    case("longest_sums", extreme(255, 2, 6000), extreme(255, 6000, 3), dtypes=("uint8",), reference=product),
    # With more than 16,448 terms, digits of four bits are split once more.
    case("very_long_sums", whole(2, 17000), whole(17000, 2), **OPTIONS),
    case("per_row_and_column", whole(4, 9), whole(9, 5), whole(4), whole(5), **OPTIONS, dynamic=False),
    case("batch", whole(2, 3, 4, 9), constant(whole(9, 5)), whole(), constant(whole(5)), **OPTIONS),
    case("batch_each", whole(2, 4, 9), whole(2, 9, 5), **OPTIONS),
    case("vector", whole(9), whole(9, 5), **OPTIONS),
    case("no_rows", whole(0, 9), whole(9, 5), **OPTIONS),
]
