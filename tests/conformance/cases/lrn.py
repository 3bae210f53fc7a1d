"""LRN."""

import numpy as np

from tests.conformance.case import SINGLE, Array, case, normal


def normalized(x: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Array:
    """In numpy, because ONNX's evaluator takes the number of images for that of channels."""
    channels = x.shape[1]
    before, after = (size - 1) // 2, size // 2
    rows = [(x[:, max(c - before, 0) : c + after + 1] ** 2).sum(1) for c in range(channels)]
    return x / (bias + alpha / size * np.stack(rows, 1)) ** beta


OP = "LRN"
OPTIONS = {"dtypes": SINGLE, "reference": normalized}
CASES = [
    case("plain", normal(2, 17, 4, 5), **OPTIONS, size=5),
    case("even_size", normal(1, 8, 3, 3), **OPTIONS, size=4),
    case("numbers", normal(1, 8, 3, 3), **OPTIONS, size=3, alpha=0.5, beta=0.25, bias=2.0),
    case("wider_than_the_channels", normal(1, 3, 3, 3), **OPTIONS, size=9, alpha=1.0),
]
