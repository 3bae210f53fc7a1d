"""LpPool."""

from typing import Any

import numpy as np

from tests.conformance.case import F32, Array, Case, Given, case, normal


def norms(x: Array, kernel_shape: list[int], p: int = 2, **attrs: Any) -> Array:
    """Windows over the input among zeros."""
    rank = len(kernel_shape)
    strides, dilations = attrs.get("strides", [1] * rank), attrs.get("dilations", [1] * rank)
    pads = attrs.get("pads", [0] * 2 * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
    if attrs.get("auto_pad", "NOTSET") != "NOTSET":
        total = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(x.shape[2:], strides, reach, strict=True)]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = less + more if attrs["auto_pad"] == "SAME_UPPER" else more + less
    wide = np.pad(np.abs(x) ** p, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    if attrs.get("ceil_mode"):
        wide = np.pad(wide, [(0, 0), (0, 0), *[(0, s - 1) for s in strides]])
    windows = np.lib.stride_tricks.sliding_window_view(wide, reach, tuple(range(2, 2 + rank)))
    at = tuple(slice(None, None, s) for s in strides)
    taps = tuple(slice(None, None, d) for d in dilations)
    return windows[(slice(None), slice(None), *at, *[slice(None)] * rank)][(..., *taps)].sum(
        tuple(range(-rank, 0))
    ) ** (1 / p)


def pooled(name: str, given: Given, **options: Any) -> Case:
    return case(name, given, reference=norms, slack=2.0, **options)


OP = "LpPool"
CASES = [
    pooled("plain", normal(2, 3, 8, 9), kernel_shape=[2, 2]),
    pooled("p1", normal(1, 3, 7, 7), kernel_shape=[3, 3], strides=[2, 2], p=1),
    pooled("p3", normal(1, 3, 7, 7), kernel_shape=[3, 3], pads=[1, 1, 1, 1], p=3, dtypes=F32),
    pooled("dilated", normal(1, 2, 9, 9), kernel_shape=[2, 2], dilations=[3, 2], dtypes=F32),
    pooled("ceil", normal(1, 2, 6, 6), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, dtypes=F32),
    pooled("same_upper", normal(1, 2, 7, 7), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER", dtypes=F32),
    pooled("same_lower", normal(1, 2, 7, 7), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER", dtypes=F32),
    pooled("line", normal(2, 3, 9), kernel_shape=[3], dtypes=F32),
    pooled("volume", normal(1, 2, 4, 5, 6), kernel_shape=[2, 3, 2], strides=[2, 1, 2], dtypes=F32),
]
