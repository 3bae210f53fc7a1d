"""DynamicQuantizePerToken."""

import numpy as np

from tests.conformance.case import Array, case, exact, normal

TINY = np.finfo(np.float32).tiny


def quantized(x: Array) -> tuple[Array, Array]:
    """The definition, in single precision: tokens with NaN or an infinity have no scale."""
    single = x.astype(np.float32)
    most = np.abs(single).max(-1, keepdims=True, initial=0)
    with np.errstate(invalid="ignore"):
        scale = np.maximum(most * np.float32(1 / 127), TINY)
        finite = np.isfinite(most)
        whole = np.rint(single * (np.float32(1) / scale))
    y = np.where(finite, np.clip(whole, -127, 127), 0)
    return y.astype(np.int8), np.where(finite, scale, np.float32(np.nan))


def tokens(spread: float) -> Array:
    """Tokens of very different magnitudes."""
    rng = np.random.default_rng(5)
    found: Array = rng.standard_normal((3, 5, 33)) * np.exp(rng.uniform(-spread, spread, (3, 5, 1)))
    return found


OP = "DynamicQuantizePerToken"
OPTIONS = {"dtypes": ("float32",), "reference": quantized, "outputs": 2, "opset": 0}
CASES = [
    case("a_matrix", normal(3, 257), **OPTIONS),
    case("of_other_magnitudes", exact(tokens(20)), **OPTIONS),
    case("halves", exact(np.concatenate([np.arange(-127, 127) / 2, [127]])), **OPTIONS),
    case("zeros", exact(np.stack([np.zeros(7), np.arange(7)])), **OPTIONS),
    case("next_to_nothing", exact(np.full((2, 9), 1e-39)), **OPTIONS),
    case("not_finite", exact(np.array([[1, np.nan, 2], [1, 2, 3], [np.inf, 0, 1], [0, 1, -np.inf]])), **OPTIONS),
    case("one_number_each", normal(5, 1), **OPTIONS),
    case("no_token", normal(0, 5), **OPTIONS),
    case("long_tokens", normal(2, 40_000), **OPTIONS),
    case("over_several_threads", normal(70, 1001), **OPTIONS),
]
