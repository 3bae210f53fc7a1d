"""Activations. `inplace` is taken for PyTorch's sake: where results lie is the planner's."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.nn.functional.arranging import where
from neurenix.nn.functional.common import traced
from neurenix.nn.traced import Traced


def _usual_dim(x: Traced) -> int:
    """The dimension that PyTorch takes where none is said."""
    return 0 if x.ndim in (0, 1, 3) else 1


def softmax(x: Traced, dim: int | None = None) -> Traced:
    """exp(x) / sum(exp(x)) along a dimension; without one, PyTorch's: 0 of 1 or 3 dimensions, else 1."""
    return x.softmax(_usual_dim(x) if dim is None else dim)


def softmin(x: Traced, dim: int | None = None) -> Traced:
    """softmax(-x) along a dimension, as `softmax` has it."""
    return softmax(-x, dim)


def log_softmax(x: Traced, dim: int | None = None) -> Traced:
    """log(softmax(x)) along a dimension, as `softmax` has it."""
    return x.trace.add("LogSoftmax", x, axis=_usual_dim(x) if dim is None else dim)


def relu(x: Traced, inplace: bool = False) -> Traced:
    """max(x, 0)."""
    return x.relu()


def hardtanh(x: Traced, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Traced:
    """min(max(x, min_val), max_val)."""
    return x.clamp(min_val, max_val)


def relu6(x: Traced, inplace: bool = False) -> Traced:
    """min(max(x, 0), 6)."""
    return hardtanh(x, 0.0, 6.0)


def threshold(x: Traced, threshold: float, value: float, inplace: bool = False) -> Traced:
    """x above the threshold, the value elsewhere."""
    return where(x > threshold, x, value)


def leaky_relu(x: Traced, negative_slope: float = 0.01, inplace: bool = False) -> Traced:
    """x above 0, negative_slope * x below."""
    return x.trace.add("LeakyRelu", x, alpha=negative_slope)


def rrelu(
    x: Traced, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Traced:
    """x above 0, (lower + upper) / 2 * x below, as PyTorch's outside of training."""
    return leaky_relu(x, (lower + upper) / 2)


def prelu(x: Traced, weight: Any) -> Traced:
    """x above 0, weight * x below, one weight for all or one per channel."""
    (slope,) = traced(weight)
    if slope.shape != (1,) and x.ndim > 2:
        slope = slope.reshape(*slope.shape, *[1] * (x.ndim - 2))
    return x.trace.add("PRelu", x, slope)


def elu(x: Traced, alpha: float = 1.0, inplace: bool = False) -> Traced:
    """x above 0, alpha * (exp(x) - 1) below."""
    return x.trace.add("Elu", x, alpha=alpha)


def selu(x: Traced, inplace: bool = False) -> Traced:
    """ELU, scaled so that networks normalise themselves."""
    return x.trace.add("Selu", x)


def celu(x: Traced, alpha: float = 1.0, inplace: bool = False) -> Traced:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return x.trace.add("Celu", x, alpha=alpha)


def gelu(x: Traced, approximate: str = "none") -> Traced:
    """x * Phi(x), or its approximation by tanh."""
    if approximate not in ("none", "tanh"):
        raise InvalidArgumentError("the approximation is unknown", expected="none or tanh", got=repr(approximate))
    return x.trace.add("Gelu", x, approximate=approximate)


def silu(x: Traced, inplace: bool = False) -> Traced:
    """x * sigmoid(x)."""
    return x.trace.add("Silu", x)


def mish(x: Traced, inplace: bool = False) -> Traced:
    """x * tanh(softplus(x))."""
    return x.trace.add("Mish", x)


def glu(x: Traced, dim: int = -1) -> Traced:
    """The first half along a dimension, by the sigmoid of the second one."""
    first, second = x.chunk(2, dim)
    return first * second.sigmoid()


def sigmoid(x: Traced) -> Traced:
    """1 / (1 + exp(-x))."""
    return x.sigmoid()


def logsigmoid(x: Traced) -> Traced:
    """log(sigmoid(x))."""
    return -x.trace.add("Softplus", -x)


def tanh(x: Traced) -> Traced:
    """The hyperbolic tangent."""
    return x.tanh()


def tanhshrink(x: Traced) -> Traced:
    """x - tanh(x)."""
    return x - x.tanh()


def softplus(x: Traced, beta: float = 1.0, threshold: float = 20.0) -> Traced:
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold."""
    scaled = x if beta == 1 else x * beta
    smooth = x.trace.add("Softplus", scaled)
    smooth = smooth if beta == 1 else smooth / beta
    # Beyond 20 float32 knows no difference.
    return smooth if threshold >= 20 else where(scaled > threshold, x, smooth)


def softsign(x: Traced) -> Traced:
    """x / (1 + |x|)."""
    return x.trace.add("Softsign", x)


def softshrink(x: Traced, lambd: float = 0.5) -> Traced:
    """x nearer to 0 by lambd, and 0 within lambd."""
    return x.trace.add("Shrink", x, lambd=lambd, bias=lambd)


def hardshrink(x: Traced, lambd: float = 0.5) -> Traced:
    """x, and 0 within lambd."""
    return x.trace.add("Shrink", x, lambd=lambd, bias=0.0)


def hardswish(x: Traced, inplace: bool = False) -> Traced:
    """x * relu6(x + 3) / 6."""
    return x.trace.add("HardSwish", x)


def hardsigmoid(x: Traced, inplace: bool = False) -> Traced:
    """relu6(x + 3) / 6."""
    return x.trace.add("HardSigmoid", x, alpha=1 / 6, beta=0.5)


def one_hot(x: Traced, num_classes: int) -> Traced:
    """1 at the number of each class, 0 elsewhere, along a new last dimension, as int64."""
    return (x.unsqueeze(-1) == np.arange(num_classes, dtype=x.dtype)).to(np.int64)
