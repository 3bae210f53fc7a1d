"""How wrong calls are registered, and the small model that they are about."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx
from neurenix import Shape
from neurenix.hardware.tensorrt import TensorRTBackend

CASES: list[Callable[[Path], Any]] = []
SHAPES = {"image": (1, 3, 8, 8)}
IMAGE = np.zeros((1, 3, 8, 8), np.float32)


def case(call: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Registers a wrong call; it gets an empty folder, which messages write as FOLDER."""
    CASES.append(call)
    return call


def network() -> nx.Network:
    made = nx.Network("m")
    x = made.add_input("image", "float32", ["batch", 3, 8, 8])
    weights = made.add_constant("w", np.ones((4, 3, 3, 3), np.float32))
    made.mark_output(made.add_layer("Conv", [x, weights], name="stem")[0], "features")
    return made


def backend() -> TensorRTBackend:
    return TensorRTBackend(optimization_level=0)


@cache
def model() -> nx.OptimizedModel:
    shape = Shape((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
    return backend().optimize_model(network(), {"image": shape})


def optimised(**options: Any) -> nx.OptimizedModel:
    return backend().optimize_model(network(), SHAPES, **options)
