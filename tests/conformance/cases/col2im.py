"""Col2Im."""

from typing import Any

from tests.conformance.case import F32, Array, Case, Given, case, ints, normal
from tests.optional import torch


def folded(x: Array, image: Array, block: Array, **attrs: Any) -> Array:
    """torch's fold, for the same padding at both ends."""
    return torch.nn.functional.fold(
        torch.from_numpy(x),
        tuple(image.tolist()),
        tuple(block.tolist()),
        tuple(attrs.get("dilations", (1, 1))),
        tuple(attrs.get("pads", (0, 0, 0, 0))[:2]),
        tuple(attrs.get("strides", (1, 1))),
    ).numpy()


def columns(name: str, *inputs: Given, **options: Any) -> Case:
    return case(name, *inputs, **{"reference": folded, "dtypes": F32, **options})


OP = "Col2Im"
CASES = [
    columns("plain", normal(1, 5, 5), ints(5, 5), ints(1, 5), dtypes=["float32", "float64", "float16"]),
    columns("channels", normal(2, 12, 16), ints(5, 5), ints(2, 2)),
    columns("strides", normal(1, 9, 4), ints(5, 5), ints(3, 3), strides=[2, 2]),
    columns("pads", normal(1, 5, 15), ints(5, 5), ints(1, 5), pads=[0, 1, 0, 1]),
    columns("dilations", normal(1, 4, 5), ints(6, 6), ints(2, 2), dilations=[1, 5]),
    columns("volume", normal(1, 10, 12), ints(3, 4, 5), ints(1, 1, 5), reference=None),
]
