"""Networks that these tests run, and what PyTorch makes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neurenix import Shape
from neurenix.hardware import OptimizedModel
from neurenix.hardware.tensorrt import TensorRTBackend

Torch = Callable[[Any], Any]


def convolutions(dimensions: int, outputs: int = 2, scale: float = 1) -> Any:
    """Two convolutions with biases, of one channel; `scale` 2 doubles the size, 0.5 halves it."""
    torch = pytest.importorskip("torch")
    convolution = getattr(torch.nn, f"Conv{dimensions}d")
    torch.manual_seed(dimensions)
    layers = [convolution(1, 4, 3, padding=1), torch.nn.ReLU()]
    if scale == 2:
        layers.append(torch.nn.Upsample(scale_factor=2, mode="nearest"))
    if scale == 0.5:
        layers.append(getattr(torch.nn, f"AvgPool{dimensions}d")(2))
    return torch.nn.Sequential(*layers, convolution(4, outputs, 3, padding=1)).eval()


def optimized(module: Any, shape: tuple[int, ...], most: int | None = 8) -> OptimizedModel:
    """The module for a batch of 1 to `most`, or for just this shape."""
    wanted: Any = {"input": shape if most is None else Shape((1, *shape[1:]), shape, (most, *shape[1:]))}
    return TensorRTBackend(threads=2, optimization_level=0, timing_cache=False).optimize_model(module, wanted)


def by_torch(module: Any, x: Any) -> np.ndarray[Any, Any]:
    """What the module itself gives."""
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        return module(torch.as_tensor(np.asarray(x, np.float32))).numpy()


@pytest.fixture(autouse=True)
def warnings_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Commands that ran in this process may have asked for fewer messages."""
    caplog.set_level(logging.WARNING, logger="neurenix")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()
