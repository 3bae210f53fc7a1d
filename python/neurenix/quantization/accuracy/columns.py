"""What a product multiplies its weights with, as rows: im2col for convolutions."""

from __future__ import annotations

from itertools import product as every
from typing import Any

import numpy as np

from neurenix.arrays import Array
from neurenix.quantization.accuracy.graph import Product


def rows(of: Product, x: Array, most: int, random: np.random.Generator) -> Array:
    """Rows [group, row, input of the group] whose products with the weights are what a layer computes; at most `most`
    of them, drawn without putting back. Of convolutions that are not transposed, and matrix products.
    """
    if of.layer.op == "MatMul":
        flat = x.reshape(-1, x.shape[-1])
        return flat[_drawn(len(flat), most, random)][None]
    return _patches(of, x, most, random)


def _drawn(count: int, most: int, random: np.random.Generator) -> Array:
    if count <= most:
        return np.arange(count)
    return np.sort(random.choice(count, most, replace=False))


def _patches(of: Product, x: Array, most: int, random: np.random.Generator) -> Array:
    """Under each place of the kernel, the inputs in the order of the weights: channel, then place in the kernel."""
    kernel = of.weights.shape[2:]
    strides, dilations, begins, ends = windows(of, x.shape[2:])
    padded = np.pad(x, [(0, 0), (0, 0), *zip(begins, ends, strict=True)])
    spans = [dilation * (extent - 1) + 1 for dilation, extent in zip(dilations, kernel, strict=True)]
    counts = [(size - span) // stride + 1 for size, span, stride in zip(padded.shape[2:], spans, strides, strict=True)]
    shape = (len(x), *counts)
    sample, *places = np.unravel_index(_drawn(int(np.prod(shape)), most, random), shape)
    first = [at * stride for at, stride in zip(places, strides, strict=True)]
    found = np.empty((len(sample), x.shape[1], int(np.prod(kernel))), np.float32)
    for number, offset in enumerate(every(*map(range, kernel))):
        where = [at + step * dilation for at, step, dilation in zip(first, offset, dilations, strict=True)]
        picked: Any = (sample, slice(None), *where)
        found[:, :, number] = padded[picked]
    grouped: Array = found.reshape(len(sample), of.view[0], -1).transpose(1, 0, 2)
    return grouped


def windows(of: Product, extents: tuple[int, ...]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, and the zeros before and behind each axis of a convolution."""
    attrs, rank = of.layer.attrs, len(extents)
    strides = list(attrs.get("strides") or [1] * rank)
    dilations = list(attrs.get("dilations") or [1] * rank)
    pads = list(attrs.get("pads") or [0] * (2 * rank))
    how = str(attrs.get("auto_pad") or "NOTSET")
    if how == "VALID":
        pads = [0] * (2 * rank)
    elif how.startswith("SAME"):
        totals = []
        for extent, stride, dilation, size in zip(extents, strides, dilations, of.weights.shape[2:], strict=True):
            totals.append(max((-(-extent // stride) - 1) * stride + dilation * (size - 1) + 1 - extent, 0))
        less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = less + more if how == "SAME_UPPER" else more + less
    return strides, dilations, pads[:rank], pads[rank:]
