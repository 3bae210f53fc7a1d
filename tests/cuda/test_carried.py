"""Engine files that go from one provider to another: each lowers the network for itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from tests.cuda import jobs
from tests.cuda.stand_in import Process

pytest.importorskip("xxhash")
from fuzz.engine_file import File


def expected(x: np.ndarray) -> np.ndarray:
    """What `jobs.gated` gives, in float64."""
    weights = jobs.gate_weights().astype(np.float64)
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,mcij->nmhw", windows, weights)
    y = np.exp(y / (1 + np.exp(-y)) + x)
    return y / y.sum(-1, keepdims=True)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_file_of_a_gpu_runs_on_the_kernels_of_a_processor(
    process: Process, tmp_path: Path, precision: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gpu.engine"
    process.run(jobs.saved, path, precision)
    opened = TensorRTBackend(providers=["cpu"], timing_cache=False).load(path)
    anew = [text for text in caplog.messages if "planned anew" in text]
    assert len(anew) == 1 and "provider cuda, here without it" in anew[0]
    x = np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype(np.float32)
    within = 1e-5 if precision == "fp32" else 5e-3
    np.testing.assert_allclose(opened({"x": x})["y"], expected(x), rtol=within, atol=within)
    names = [row.implementation for row in opened.profile({"x": x}, 1)]
    assert not any("ref" in name for name in names), names


def test_a_file_of_a_processor_runs_in_half_precision_on_a_gpu(process: Process, tmp_path: Path) -> None:
    """A processor computes a float16 network in float32, which is no matter of the file."""
    network = nx.Network("halves")
    x = network.add_input("x", "float16", ["batch", 64])
    weights = network.add_constant("w", np.ones((64, 32), np.float16))
    y = network.add_layer("MatMul", [x, weights])[0]
    network.mark_output(network.add_layer("Silu", [y])[0], "y")
    path = tmp_path / "cpu.engine"
    built = TensorRTBackend(providers=["cpu"], timing_cache=False).optimize_model(network, {"x": (2, 64)})
    built.save(path)
    assert "Cast" in built._engine.dump()
    assert {layer["op"] for layer in File.read(path.read_bytes()).header["network"]["layers"]} == {"MatMul", "Silu"}
    kernels = process.run(jobs.opened, path)
    assert kernels and not any("Cast" in kernel for _, kernel in kernels), kernels
    assert {provider for provider, _ in kernels} == {"cuda"}
    again = TensorRTBackend(providers=["cpu"], timing_cache=False).load(path)
    ones = np.ones((2, 64), np.float16)
    np.testing.assert_array_equal(again(ones), built(ones))
