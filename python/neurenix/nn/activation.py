"""Activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix.nn import checks
from neurenix.nn import functional as F
from neurenix.nn.module import Module, Parameter
from neurenix.nn.traced import Traced


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.relu(x)


class ReLU6(ReLU):
    """min(max(x, 0), 6)."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.relu6(x)


class SiLU(ReLU):
    """x * sigmoid(x)."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.silu(x)


class Mish(ReLU):
    """x * tanh(softplus(x))."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.mish(x)


class SELU(ReLU):
    """ELU, scaled so that networks normalise themselves."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.selu(x)


class Hardswish(ReLU):
    """x * relu6(x + 3) / 6."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.hardswish(x)


class Hardsigmoid(ReLU):
    """relu6(x + 3) / 6."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.hardsigmoid(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.tanh(x)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.softsign(x)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.logsigmoid(x)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.tanhshrink(x)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.softplus(x, self.beta, self.threshold)


class Softshrink(Module):
    """x nearer to 0 by lambd, and 0 within lambd."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.softshrink(x, self.lambd)


class Hardshrink(Softshrink):
    """x, and 0 within lambd."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.hardshrink(x, self.lambd)


class Threshold(Module):
    """x above the threshold, the value elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value = threshold, value

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.threshold(x, self.threshold, self.value)


class RReLU(Module):
    """x above 0, (lower + upper) / 2 * x below."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper = lower, upper

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.rrelu(x, self.lower, self.upper)


class GLU(Module):
    """The first half along a dimension, by the sigmoid of the second one."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.glu(x, self.dim)


class LeakyReLU(Module):
    """x above 0, negative_slope * x below."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.leaky_relu(x, self.negative_slope)


class PReLU(Module):
    """x above 0, weight * x below."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        super().__init__()
        self.weight = Parameter(np.full(num_parameters, init, np.float32))

    def forward(self, x: Traced) -> Traced:
        """x [N, C, ...]."""
        return F.prelu(x, self.weight)


class ELU(Module):
    """x above 0, alpha * (exp(x) - 1) below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.elu(x, self.alpha)


class CELU(ELU):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.celu(x, self.alpha)


class GELU(Module):
    """x * Phi(x); `approximate="tanh"` for its approximation."""

    def __init__(self, approximate: str = "none") -> None:
        checks.one_of(("none", "tanh"), approximate=approximate)
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.gelu(x, self.approximate)


class Hardtanh(Module):
    """min(max(x, min_val), max_val)."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.hardtanh(x, self.min_val, self.max_val)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along a dimension; without one, PyTorch's: 0 of 1 or 3 dimensions, else 1."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.softmax(x, self.dim)


class LogSoftmax(Softmax):
    """log(softmax(x)) along a dimension."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.log_softmax(x, self.dim)


class Softmin(Softmax):
    """softmax(-x) along a dimension."""

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return F.softmin(x, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of each pixel."""

    def forward(self, x: Traced) -> Traced:
        """x [N, C, H, W] or [C, H, W]."""
        return F.softmax(x, -3)
