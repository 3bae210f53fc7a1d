"""Convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.nn.functional.common import Ints, fixed, per_batch, spread, traced
from neurenix.nn.traced import Traced


def window_padding(padding: Ints | str, rank: int, stride: Ints) -> dict[str, Any]:
    """The attributes of a window's padding.

    Raises `InvalidArgumentError` for an unknown word, or a list of another length than there are spatial dimensions.
    """
    if not isinstance(padding, str):
        return {"pads": spread(padding, rank) * 2}
    words = {"same": "SAME_UPPER", "valid": "VALID"}
    if padding not in words:
        raise InvalidArgumentError("padding is unknown", expected="integers, 'same' or 'valid'", got=repr(padding))
    if padding == "same" and spread(stride, rank) != [1] * rank:
        raise InvalidArgumentError("padding='same' is for a stride of 1", got=f"stride={stride}")
    return {"auto_pad": words[padding]}


def conv(
    x: Traced,
    weight: Any,
    bias: Any = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Traced:
    """Convolution over 1 to 3 spatial dimensions: x [N, C, spatial...], weight [M, C / groups, kernel...]."""
    weight, bias = traced(weight, bias)
    rank = weight.ndim - 2
    attrs = {"strides": spread(stride, rank), "dilations": spread(dilation, rank), "group": groups}
    attrs |= window_padding(padding, rank, stride)
    return per_batch(x, rank, lambda x: x.trace.add("Conv", x, weight, bias, **attrs))


conv1d = conv2d = conv3d = conv


def conv_transpose(
    x: Traced,
    weight: Any,
    bias: Any = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Traced:
    """Transposed convolution: x [N, C, spatial...], weight [C, M / groups, kernel...]."""
    weight, bias = traced(weight, bias)
    rank = weight.ndim - 2
    attrs = {
        "strides": spread(stride, rank),
        "dilations": spread(dilation, rank),
        "pads": spread(padding, rank) * 2,
        "output_padding": spread(output_padding, rank),
        "group": groups,
    }
    return per_batch(x, rank, lambda x: x.trace.add("ConvTranspose", x, weight, bias, **attrs))


conv_transpose1d = conv_transpose2d = conv_transpose3d = conv_transpose


def unfold(x: Traced, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Traced:
    """The windows of an image as columns: x [N, C, H, W] to [N, C kh kw, windows]."""
    if x.ndim != 4:
        raise UnsupportedError("windows are taken of images", expected="[N, C, H, W]", got=str(list(x.shape)))
    channels, kernel = fixed(x, 1, "the channels of an Unfold must be known"), spread(kernel_size, 2)
    size = kernel[0] * kernel[1]
    picks = np.eye(size, dtype=x.dtype).reshape(size, 1, *kernel)
    windows = conv(x, np.tile(picks, (channels, 1, 1, 1)), None, stride, padding, dilation, channels)
    return windows.flatten(2)


def fold(
    x: Traced,
    output_size: Ints,
    kernel_size: Ints,
    dilation: Ints = 1,
    padding: Ints = 0,
    stride: Ints = 1,
) -> Traced:
    """Columns summed up into an image, as `unfold` took them: x [N, C kh kw, windows] to [N, C, H, W]."""
    sizes = [x.trace.constant(np.array(spread(size, 2), np.int64)) for size in (output_size, kernel_size)]
    attrs = {"strides": spread(stride, 2), "dilations": spread(dilation, 2), "pads": spread(padding, 2) * 2}
    return x.trace.add("Col2Im", x, *sizes, **attrs)
