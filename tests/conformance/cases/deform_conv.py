"""DeformConv."""

from typing import Any

import numpy as np

from tests.conformance.case import F32, Array, Case, Given, case, normal, uniform
from tests.optional import torch


def deformed(x: Array, w: Array, offset: Array, bias: Any = None, mask: Any = None, **attrs: Any) -> Array:
    """Each tap read by torch's grid_sample, then summed over taps and channels."""
    (n, c, height, width), (_, _, kh, kw), (oh, ow) = x.shape, w.shape, offset.shape[2:]
    groups, parts = attrs.get("group", 1), attrs.get("offset_group", 1)
    (sh, sw), (dh, dw) = attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))
    top, left = attrs.get("pads", (0, 0, 0, 0))[:2]
    offset = offset.reshape(n, parts, kh, kw, 2, oh, ow)
    mask = np.ones((n, parts, kh, kw, oh, ow)) if mask is None else mask.reshape(n, parts, kh, kw, oh, ow)
    taps = np.zeros((n, c, kh, kw, oh, ow))
    for part in range(parts):
        channels = slice(part * c // parts, (part + 1) * c // parts)
        for i in range(kh):
            for j in range(kw):
                ys = np.arange(oh)[:, None] * sh - top + i * dh + offset[:, part, i, j, 0]
                xs = np.arange(ow) * sw - left + j * dw + offset[:, part, i, j, 1]
                grid = np.stack([xs / (width - 1) * 2 - 1, ys / (height - 1) * 2 - 1], -1)
                read = torch.nn.functional.grid_sample(
                    torch.from_numpy(np.ascontiguousarray(x[:, channels])), torch.from_numpy(grid), align_corners=True
                )
                taps[:, channels, i, j] = read.numpy() * mask[:, part, i, j][:, None]
    split = taps.reshape(n, groups, c // groups, kh, kw, oh, ow)
    y = np.einsum("ngcijhw,gmcij->ngmhw", split, w.reshape(groups, -1, *w.shape[1:])).reshape(n, -1, oh, ow)
    return y if bias is None else y + bias[:, None, None]


def deform(name: str, *inputs: Given | None, **options: Any) -> Case:
    return case(name, *inputs, **{"reference": deformed, "dtypes": F32, "sums": True, "dynamic": False, **options})


OP = "DeformConv"
X = normal(2, 4, 6, 7)
CASES = [
    deform("plain", X, normal(3, 4, 2, 3), uniform(-2, 2, 2, 12, 5, 5), dtypes=["float32", "float64"]),
    deform("bias_and_mask", X, normal(3, 4, 2, 2), uniform(-2, 2, 2, 8, 5, 6), normal(3), normal(2, 4, 5, 6)),
    deform(
        "offset_groups", X, normal(3, 4, 2, 2), uniform(-2, 2, 2, 16, 5, 6), None, normal(2, 8, 5, 6), offset_group=2
    ),
    deform("groups", X, normal(6, 2, 2, 2), uniform(-2, 2, 2, 8, 5, 6), group=2),
    deform(
        "window",
        X,
        normal(3, 4, 3, 3),
        uniform(-2, 2, 2, 18, 4, 3),
        kernel_shape=[3, 3],
        pads=[1, 1, 2, 1],
        strides=[2, 2],
        dilations=[1, 2],
    ),
]
