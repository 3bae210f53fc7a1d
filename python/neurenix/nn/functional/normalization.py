"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.errors import UnsupportedError
from neurenix.nn.functional.common import fixed, traced
from neurenix.nn.traced import Traced

_CHANNELS = "the channels that are normalised must be known"


def _affine(x: Traced, weight: Any, bias: Any) -> list[Any]:
    """Weight and bias for each channel; ones and zeros where there are none."""
    channels = fixed(x, 1, _CHANNELS)
    weight = np.ones(channels, x.dtype) if weight is None else weight
    bias = np.zeros(channels, x.dtype) if bias is None else bias
    return traced(weight, bias)


def batch_norm(
    x: Traced,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Traced:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel; mean and variance of x itself with `training`."""
    weight, bias = _affine(x, weight, bias)
    if not training:
        mean, var = traced(running_mean, running_var)
        return x.trace.add("BatchNormalization", x, weight, bias, mean, var, epsilon=eps)
    axes = [axis for axis in range(x.ndim) if axis != 1]
    centred = x - x.mean(axes, keepdim=True)
    scale = ((centred * centred).mean(axes, keepdim=True) + eps).sqrt()
    dims = (-1, *[1] * (x.ndim - 2))
    normalized: Traced = centred / scale * weight.reshape(*dims) + bias.reshape(*dims)
    return normalized


def layer_norm(
    x: Traced, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Traced:
    """Normalisation over the last dimensions, `normalized_shape` of them."""
    if weight is None:
        weight = np.ones(tuple(normalized_shape), x.dtype)
    weight, bias = traced(weight, bias)
    return x.trace.add("LayerNormalization", x, weight, bias, axis=-len(normalized_shape), epsilon=eps)


def rms_norm(x: Traced, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Traced:
    """x / sqrt(mean(x * x) + eps) * weight over the last dimensions; `eps` None is that of the dtype."""
    (weight,) = traced(np.ones(tuple(normalized_shape), x.dtype) if weight is None else weight)
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    return x.trace.add("RMSNormalization", x, weight, axis=-len(normalized_shape), epsilon=eps)


def group_norm(x: Traced, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Traced:
    """Normalisation over groups of channels and all spatial dimensions."""
    weight, bias = _affine(x, weight, bias)
    return x.trace.add("GroupNormalization", x, weight, bias, num_groups=num_groups, epsilon=eps)


def instance_norm(
    x: Traced,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Traced:
    """Normalisation over the spatial dimensions of each channel, or by what was seen in training."""
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    weight, bias = _affine(x, weight, bias)
    return x.trace.add("InstanceNormalization", x, weight, bias, epsilon=eps)


def local_response_norm(x: Traced, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Traced:
    """x / (k + alpha * mean of the squares in `size` channels around) ** beta.

    Raises `UnsupportedError` for even sizes.
    """
    if size % 2 == 0:
        raise UnsupportedError(
            "local response normalisation is over as many channels on both sides", expected="an odd size", got=str(size)
        )
    return x.trace.add("LRN", x, size=size, alpha=alpha, beta=beta, bias=k)


def normalize(x: Traced, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Traced:
    """x / max(norm of order p along a dimension, eps)."""
    return x / x.norm(p, dim, keepdim=True).clamp(min=eps)


def cosine_similarity(x1: Traced, x2: Traced, dim: int = 1, eps: float = 1e-8) -> Traced:
    """The cosine of the angle between vectors along a dimension."""
    lengths = [x.norm(2.0, dim, keepdim=True).clamp(min=eps) for x in (x1, x2)]
    return (x1 / lengths[0] * (x2 / lengths[1])).sum(dim)


def pairwise_distance(x1: Traced, x2: Traced, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Traced:
    """The norm of order p of x1 - x2 + eps along the last dimension."""
    return (x1 - x2 + eps).norm(p, -1, keepdim)
