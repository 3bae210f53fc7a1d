"""Calibration whose numbers a GPU counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native
from neurenix.errors import InvalidArgumentError
from neurenix.hardware import get_backend
from neurenix.quantization import CalibrationCache, EntropyCalibrator

MISSING = dict(_native.provider_states())["cuda"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(MISSING is not None, reason=f"no GPU for the CUDA provider: {MISSING}"),
]

RNG = np.random.default_rng(4)
WEIGHTS = [RNG.normal(size=shape).astype(np.float32) * 0.2 for shape in [(32, 8, 3, 3), (32, 32, 1, 1), (32, 10)]]


def network() -> nx.Network:
    """A convolution, one beside a residual, and a product behind a mean."""
    made = nx.Network("counted")
    x = made.add_input("x", np.float32, (4, 8, 16, 16))
    first, second, last = (made.add_constant(f"w{at}", array) for at, array in enumerate(WEIGHTS))
    y = made.add_layer("Relu", made.add_layer("Conv", [x, first], {"pads": [1, 1, 1, 1]}))[0]
    z = made.add_layer("Relu", made.add_layer("Add", [made.add_layer("Conv", [y, second])[0], y]))[0]
    mean = made.add_layer("ReduceMean", [z], {"axes": [2, 3], "keepdims": 0})[0]
    made.mark_output(made.add_layer("MatMul", [mean, last])[0], "y")
    return made


def batches(count: int = 6) -> list[np.ndarray]:
    """Of different ranges."""
    rng = np.random.default_rng(5)
    return [(scale * rng.normal(size=(4, 8, 16, 16))).astype(np.float32) for scale in 0.5 + rng.random(count)]


def ranges(device: str, cache: Path) -> dict[str, float]:
    """Those that a build on a device finds."""
    calibrator = EntropyCalibrator(batches(), cache_file=cache)
    get_backend(device).optimize_model(network(), None, precision="int8", calibration=calibrator)
    return CalibrationCache.read(cache).ranges


def test_ranges_are_those_of_the_processor(tmp_path: Path) -> None:
    want, got = ranges("cpu", tmp_path / "cpu.cache"), ranges("cuda", tmp_path / "cuda.cache")
    assert want.keys() == got.keys() and len(want) >= 3
    for name, magnitude in want.items():
        assert got[name] == pytest.approx(magnitude, rel=0.02), name


def test_what_is_not_finite_names_its_tensor() -> None:
    bad = batches(2)
    bad[1][0, 0, 0, 0] = np.inf
    with pytest.raises(InvalidArgumentError, match="not finite") as error:
        get_backend("cuda").optimize_model(network(), None, precision="int8", calibration=bad)
    assert error.value.tensor
