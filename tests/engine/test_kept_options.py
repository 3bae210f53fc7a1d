"""Engine files keep the options that decide about kernels; what differs where they are opened is named."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native
from neurenix.hardware.tensorrt import Runtime, TensorRTBackend

X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)


def model(**options: Any) -> nx.OptimizedModel:
    """Two products, tuned."""
    layers = nx.nn.Sequential(nx.nn.Linear(64, 256), nx.nn.GELU(), nx.nn.Linear(256, 10))
    return TensorRTBackend(timing_cache=False).optimize_model(layers, {"input": X.shape}, **options)


def kept(opened: nx.OptimizedModel) -> dict[str, Any]:
    return {name: opened._options[name] for name in ("threads", "hint") if name in opened._options}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "planned anew" in r.getMessage()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.engine"


@pytest.mark.parametrize("level", [0, 1, 3])
def test_threads_hint_and_level_are_those_of_the_build(
    path: Path, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    built = model(threads=1, hint="throughput", optimization_level=level)
    built.save(path)
    with caplog.at_level(logging.WARNING, "neurenix"):
        opened = TensorRTBackend(timing_cache=False).load(path)
    assert warnings(caplog) == []
    assert opened.report()["threads"] == built.report()["threads"] and opened.jobs == built.jobs
    np.testing.assert_array_equal(opened(X), built(X))
    # A file of what was opened is the same again.
    opened.save(path)
    again = TensorRTBackend(timing_cache=False).load(path)
    assert again.report()["threads"] == built.report()["threads"]
    np.testing.assert_array_equal(again(X), built(X))


@pytest.mark.skipif(_native.default_threads() < 2, reason="one thread is all that there is")
def test_options_of_the_load_go_over_those_of_the_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model(threads=1).save(path)
    with caplog.at_level(logging.WARNING, "neurenix"):
        opened = TensorRTBackend(timing_cache=False).load(path, threads=2)
    assert opened.report()["threads"]["call"] == 2
    assert warnings(caplog) == ["the engine was planned anew, since its build differs: threads 1, here 2"]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "neurenix"):
        of_backend = TensorRTBackend(timing_cache=False, hint="throughput").load(path)
    assert of_backend.report()["threads"] == {"call": 1, "calls": 2} and warnings(caplog) == []


def test_a_level_is_named_and_no_device(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model(optimization_level=1, threads=1).save(path)
    with caplog.at_level(logging.WARNING, "neurenix"):
        TensorRTBackend(timing_cache=False).load(path, optimization_level=4)
    assert warnings(caplog) == ["the engine was planned anew, since its build differs: optimization_level 1, here 4"]


def test_the_warning_is_of_one_opening(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model(optimization_level=1, threads=1).save(path)
    TensorRTBackend(timing_cache=False).load(path, optimization_level=3).save(path)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "neurenix"):
        TensorRTBackend(timing_cache=False).load(path)
    assert warnings(caplog) == []


def test_times_of_this_machine_do_not_stand_above_those_of_the_file(path: Path, tmp_path: Path) -> None:
    """A more thorough build left its times in the cache; the file's own still decide."""
    cache = tmp_path / "times"
    layers = nx.nn.Sequential(nx.nn.Linear(64, 256), nx.nn.GELU(), nx.nn.Linear(256, 10))
    backend = TensorRTBackend(timing_cache=cache, threads=1)
    backend.optimize_model(layers, {"input": X.shape}, optimization_level=1).save(path)
    tuned = [row["tuned_nanoseconds"] for row in backend.load(path).report()["kernels"]]
    backend.optimize_model(layers, {"input": X.shape}, optimization_level=5)
    again = [row["tuned_nanoseconds"] for row in backend.load(path).report()["kernels"]]
    assert again == tuned


def test_new_weights_are_planned_with_the_options_of_the_file(path: Path) -> None:
    network = nx.Network("product")
    x = network.add_input("x", "float32", [8, 64])
    weights = np.ones((64, 4), np.float32)
    network.mark_output(network.add_layer("MatMul", [x, network.add_constant("w", weights)])[0], "y")
    backend = TensorRTBackend(timing_cache=False)
    backend.optimize_model(network, threads=1, hint="throughput", refittable=True).save(path)
    opened = backend.load(path)
    opened.update_weights({"w": 2 * weights})
    assert opened.report()["threads"]["call"] == 1
    np.testing.assert_allclose(opened(X), X @ (2 * weights), rtol=1e-4, atol=1e-4)


def test_the_runtime_keeps_them_too(path: Path) -> None:
    model(threads=1, hint="throughput").save(path)
    engine = Runtime().deserialize_cuda_engine(path.read_bytes())
    assert engine is not None
    assert engine._engine.calls == 2 and "threads" not in engine._options
