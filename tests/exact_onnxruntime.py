"""ONNX Runtime as a reference for products of 8 bits, on processors too where its usual kernels are not exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.machine import HAS_INT8

#: Whether its products of uint8 and int8 sum pairs in 16 bits, which may not hold them.
SATURATES = not HAS_INT8


def session(model: Path) -> Any:
    """A session in which constant weights of int8 become uint8, whose products saturate nowhere."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    if SATURATES:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def whole(rng: np.random.Generator, dtype: str, *shape: int) -> NDArray[Any]:
    """Any integers; of int8 those of 7 bits where products of more saturate."""
    ends = np.iinfo(dtype)
    half = 2 if SATURATES and dtype == "int8" else 1
    return rng.integers(ends.min // half, ends.max // half, shape, dtype, endpoint=True)
