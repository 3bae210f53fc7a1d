"""MaxPoolIndices: MaxPool's second output; ONNX has no op of this name."""

from typing import Any

import numpy as np

from tests.conformance.case import Array, Case, Given, case, distinct, exact
from tests.optional import torch


def found(x: Array, kernel_shape: list[int], **attrs: Any) -> Array:
    """torch's indices, which count in each plane alone."""
    pools = [torch.nn.functional.max_pool1d, torch.nn.functional.max_pool2d, torch.nn.functional.max_pool3d]
    rank = len(kernel_shape)
    pads = attrs.get("pads", [0] * rank)[:rank]
    _, at = pools[rank - 1](
        torch.from_numpy(x.astype(np.float64)),
        kernel_shape,
        attrs.get("strides", 1),
        pads,
        attrs.get("dilations", 1),
        bool(attrs.get("ceil_mode")),
        return_indices=True,
    )
    places = np.unravel_index(at.numpy(), x.shape[2:])
    order = range(rank) if attrs.get("storage_order") else reversed(range(rank))
    index, step = np.zeros(at.shape, np.int64), 1
    for axis in order:
        index += places[axis] * step
        step *= x.shape[2 + axis]
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * rank)
    return index + planes * step


def indices(name: str, given: Given, **options: Any) -> Case:
    options = {"dtypes": ["float32", "float64", "float16", "int8"], **options}
    return case(name, given, reference=found, opset=0, **options)


OP = "MaxPoolIndices"
CASES = [
    indices("plain", distinct(1, 2, 4, 6), kernel_shape=[2, 2], strides=[2, 2]),
    indices("columns_first", distinct(1, 2, 4, 6), kernel_shape=[2, 2], strides=[2, 2], storage_order=1),
    indices("pads", distinct(1, 2, 5, 5), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    indices("dilated", distinct(1, 2, 5, 6), kernel_shape=[2, 2], dilations=[2, 2]),
    indices("ceil", distinct(1, 1, 6, 6), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    indices("line", distinct(2, 3, 9), kernel_shape=[3], strides=[2]),
    indices("volume", distinct(1, 2, 4, 3, 5), kernel_shape=[2, 2, 2], storage_order=1),
    indices("equal_ones", exact(np.ones((1, 1, 3, 3))), kernel_shape=[2, 2]),
]
