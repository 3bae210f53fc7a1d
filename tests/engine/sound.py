"""A sound engine file, for tests that spoil it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend

X = np.ones((2, 64), np.float32)
WEIGHTS = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
BIAS = np.arange(32, dtype=np.float32)


def backend() -> TensorRTBackend:
    """Builds and opens without measuring."""
    return TensorRTBackend(threads=1, optimization_level=0, timing_cache=False)


def model(**options: Any) -> nx.OptimizedModel:
    """`X @ WEIGHTS + BIAS`, for any number of rows."""
    network = nx.Network("sound")
    x = network.add_input("x", "float32", ["n", 64])
    product = network.add_layer("MatMul", [x, network.add_constant("w", WEIGHTS)])[0]
    network.mark_output(network.add_layer("Add", [product, network.add_constant("b", BIAS)])[0], "y")
    return backend().optimize_model(network, {"x": nx.Shape((1, 64), (2, 64), (4, 64))}, **options)


def saved(path: Path, **options: Any) -> bytes:
    """What the model is as a file."""
    model(**options).save(path)
    return path.read_bytes()


def answers(opened: nx.OptimizedModel) -> bool:
    """Whether a model gives what it should."""
    return bool(np.allclose(opened(X), X @ WEIGHTS + BIAS, atol=1e-4))
