"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.nn.functional.common import Ints, fixed, per_batch, spread
from neurenix.nn.traced import Traced

Sizes = int | None | Sequence[int | None]


def _window(rank: int, kernel_size: Ints, stride: Ints | None, padding: Ints, ceil_mode: bool) -> dict[str, Any]:
    pads = spread(padding, rank)
    kernel = spread(kernel_size, rank)
    if any(2 * pad > extent for pad, extent in zip(pads, kernel, strict=True)):
        raise InvalidArgumentError(
            "the padding is more than half of a window", expected=f"at most {[k // 2 for k in kernel]}", got=str(pads)
        )
    return {
        "kernel_shape": kernel,
        "strides": kernel if stride is None else spread(stride, rank),
        "pads": pads * 2,
        "ceil_mode": int(ceil_mode),
    }


def max_pool(
    rank: int,
    x: Traced,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of each window of [N, C, spatial...] or [C, spatial...]; also where in its channel it is."""
    attrs = _window(rank, kernel_size, stride, padding, ceil_mode) | {"dilations": spread(dilation, rank)}
    greatest = per_batch(x, rank, lambda x: x.trace.add("MaxPool", x, **attrs))
    if not return_indices:
        return greatest
    plane = math.prod(fixed(x, axis, "indices are told in fixed images alone") for axis in range(-rank, 0))
    places = per_batch(x, rank, lambda x: x.trace.add("MaxPoolIndices", x, **attrs))
    return greatest, places % plane


max_pool1d, max_pool2d, max_pool3d = (partial(max_pool, rank) for rank in (1, 2, 3))


def avg_pool(
    rank: int,
    x: Traced,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Traced:
    """The mean of each window of [N, C, spatial...] or [C, spatial...], or its sum by a divisor."""
    attrs = _window(rank, kernel_size, stride, padding, ceil_mode)
    if divisor_override is None:
        attrs["count_include_pad"] = int(count_include_pad)
        return per_batch(x, rank, lambda x: x.trace.add("AveragePool", x, **attrs))
    if ceil_mode:
        raise UnsupportedError("divisor_override is not supported with ceil_mode", hint="pad the input before")
    attrs["count_include_pad"] = 1
    means = per_batch(x, rank, lambda x: x.trace.add("AveragePool", x, **attrs))
    scale: float = math.prod(attrs["kernel_shape"]) / divisor_override
    return means * scale


avg_pool1d, avg_pool2d, avg_pool3d = (partial(avg_pool, rank) for rank in (1, 2, 3))


def lp_pool(
    rank: int, x: Traced, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
) -> Traced:
    """The root of order `norm_type` of the sum of powers in each window."""
    size = math.prod(spread(kernel_size, rank))
    return (avg_pool(rank, x**norm_type, kernel_size, stride, 0, ceil_mode) * size) ** (1.0 / norm_type)


lp_pool1d, lp_pool2d, lp_pool3d = (partial(lp_pool, rank) for rank in (1, 2, 3))


def max_unpool(
    rank: int,
    x: Traced,
    indices: Traced,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Traced:
    """Each element back where `indices` of max_pool found it, zeros elsewhere; images are of a fixed size."""
    attrs = _window(rank, kernel_size, stride, padding, False)
    shape = [fixed(x, axis, "unpooling needs images of a fixed size") for axis in range(-rank, 0)]
    parts = zip(shape, attrs["strides"], attrs["pads"], attrs["kernel_shape"], strict=False)
    usual = [(extent - 1) * step - 2 * pad + window for extent, step, pad, window in parts]
    out = usual if output_size is None else list(output_size)[-rank:]
    before = x.shape[:-rank]
    zeros = x.trace.constant(np.zeros(math.prod(out), x.dtype)).expand(*before, math.prod(out))
    flat = (t.flatten(-rank) for t in (indices, x))
    return x.trace.add("ScatterElements", zeros, *flat, axis=-1).reshape(*before, *out)


max_unpool1d, max_unpool2d, max_unpool3d = (partial(max_unpool, rank) for rank in (1, 2, 3))


def adaptive_avg_pool(rank: int, x: Traced, output_size: Sizes) -> Traced:
    """The mean of parts of each spatial dimension, as many parts as `output_size` says; None keeps one as it is."""
    return per_batch(x, rank, lambda x: _adaptive(x, output_size, "GlobalAveragePool", "AveragePool", _averaged))


def adaptive_max_pool(rank: int, x: Traced, output_size: Sizes, return_indices: bool = False) -> Traced:
    """The greatest element of parts of each spatial dimension. Raises `UnsupportedError` for `return_indices`."""
    if return_indices:
        raise UnsupportedError("adaptive pooling does not tell indices", hint="max_pool with return_indices=True does")
    return per_batch(x, rank, lambda x: _adaptive(x, output_size, "GlobalMaxPool", "MaxPool", _greatest))


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (partial(adaptive_avg_pool, r) for r in (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (partial(adaptive_max_pool, r) for r in (1, 2, 3))


def _adaptive(x: Traced, output_size: Sizes, whole: str, parts: str, uneven: Callable[..., Traced]) -> Traced:
    spatial = x.shape[2:]
    sizes = [output_size] * len(spatial) if isinstance(output_size, int | None) else list(output_size)
    if all(size == 1 for size in sizes):
        return x.trace.add(whole, x)
    kernel = []
    for axis, (have, want) in enumerate(zip(spatial, sizes, strict=True), 2):
        if want is None or have == want:
            kernel.append(1)
            continue
        extent = fixed(x, axis, "adaptive pooling of a dynamic dimension is into one part alone")
        if extent % want == 0:
            kernel.append(extent // want)
        else:
            # An uneven dimension is done by itself: neither means nor maxima of parts depend on the order.
            bounds = [(part * extent // want, -(-(part + 1) * extent // want)) for part in range(want)]
            x = uneven(x, axis, bounds)
            kernel.append(1)
    return x if set(kernel) == {1} else x.trace.add(parts, x, kernel_shape=kernel, strides=kernel)


def _averaged(x: Traced, axis: int, bounds: Sequence[tuple[int, int]]) -> Traced:
    weights = np.zeros((x.shape[axis], len(bounds)), x.dtype)
    for part, (start, end) in enumerate(bounds):
        weights[start:end, part] = 1 / (end - start)
    return (x.transpose(axis, -1) @ weights).transpose(axis, -1)


def _greatest(x: Traced, axis: int, bounds: Sequence[tuple[int, int]]) -> Traced:
    parts = [x.narrow(axis, start, end - start).amax(axis, keepdim=True) for start, end in bounds]
    return x.trace.add("Concat", *parts, axis=axis)
