"""Random arrays and the random weights of new layers, from one seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_generator = np.random.default_rng(0)


def seed(value: int) -> None:
    """Starts the sequence anew; it starts with seed 0."""
    global _generator
    _generator = np.random.default_rng(value)


def randn(*shape: int) -> NDArray[np.float32]:
    """A float32 array of this shape from the normal distribution with mean 0 and deviation 1."""
    return _generator.standard_normal(shape, np.float32)


def rand(*shape: int) -> NDArray[np.float32]:
    """A float32 array of this shape, uniform in [0, 1)."""
    return _generator.random(shape, np.float32)


def kaiming_uniform(shape: tuple[int, ...], fan_in: int) -> NDArray[np.float32]:
    """Float32 weights as PyTorch gives them to a new layer: uniform in -bound..bound with bound 1 / sqrt(fan_in)."""
    bound = 1.0 / max(fan_in, 1) ** 0.5
    weights: NDArray[np.float32] = (2 * _generator.random(shape, np.float32) - 1) * np.float32(bound)
    return weights
