"""Plugins beside the CUDA provider: against a recorded H200 everywhere, and on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix import _native
from tests.cuda import stand_in
from tests.cuda.conftest import libraries
from tests.plugins import gpu_jobs as jobs
from tests.plugins.test_libraries import compile_library

__all__ = ["libraries"]

MISSING = dict(_native.provider_states())["cuda"]
needs_gpu = pytest.mark.skipif(MISSING is not None, reason=f"no GPU for the CUDA provider: {MISSING}")
#: Copy in, the layer before, the plugin, the layer behind, copy out: what computes of it.
AROUND = [("cuda", "Relu"), ("cuda", "Plugin"), ("cuda", "Sigmoid")]


@pytest.fixture(scope="module")
def process(libraries: Path) -> Iterator[stand_in.Process]:
    """A process that sees the recorded device."""
    with stand_in.Process(libraries) as process:
        yield process


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library with a plugin that copies, on either device."""
    source = Path(__file__).with_name("copy_plugin.cc")
    return str(compile_library(source, tmp_path_factory.mktemp("copy") / "libcopy.so"))


def kinds(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(provider, kernel.partition(" ")[0]) for provider, kernel in rows]


def test_a_kernel_of_a_plugin_is_launched_and_recorded(process: stand_in.Process) -> None:
    rows, launches, later = process.run(jobs.launched)
    assert kinds(rows) == AROUND
    # Blocks follow from the shapes: 4 x 8 and 40 x 8 elements, 128 threads a block.
    assert launches == ["scale 1 1 1 128", "scale 3 1 1 128"]
    # A call that repeats is one graph, the plugin inside.
    assert later == [1, 0]


def test_python_is_a_cut_in_the_graph(process: stand_in.Process) -> None:
    rows, graphs, calls = process.run(jobs.python, False)
    assert kinds(rows) == AROUND
    # Before and behind the plugin lie only copies and one kernel each, which are recorded from the second call on.
    assert calls == 8 and graphs[0] == 0 and graphs[-1] > 0


def test_python_that_may_be_recorded_is_left_out_of_replays(process: stand_in.Process) -> None:
    rows, graphs, calls = process.run(jobs.python, True)
    assert kinds(rows) == AROUND
    assert graphs[-3:] == [1, 1, 1] and calls < 5


@pytest.mark.parametrize("capturable", [False, True])
def test_a_library_in_cpp_works_in_the_stream(process: stand_in.Process, copy: str, capturable: bool) -> None:
    rows, graphs = process.run(jobs.library, copy, capturable)
    assert kinds(rows) == AROUND
    # As a class in Python: a cut, or inside the one graph of a call.
    assert graphs[0] == 0 and graphs[-1] > 0 and (graphs[-3:] == [1, 1, 1]) == capturable


def test_a_plugin_that_the_gpu_does_not_run_gets_its_data_on_the_processor(process: stand_in.Process) -> None:
    rows, refusals = process.run(jobs.on_host)
    assert kinds(rows) == [("cuda", "Relu"), ("cpu", "Plugin"), ("cuda", "Sigmoid")]
    assert [(r["provider"], r["layer"]) for r in refusals] == [("cuda", "mine")]
    assert refusals[0]["reason"].endswith("plugin OnHost version 1 runs on cpu (its `devices`), not on cuda")
    error = process.run(jobs.alone)
    assert isinstance(error, nx.UnsupportedError) and "runs on cpu (its `devices`), not on cuda" in error.message


def test_a_failure_is_named_and_other_calls_go_on(process: stand_in.Process) -> None:
    errors = process.run(jobs.failing)
    assert [error is None for error in errors] == [True, False, True, False, True, True, False]
    for error in errors[1::2][:2]:
        assert isinstance(error, nx.PluginError) and error.layer == "mine"
        assert "plugin Failing version 1: execute raised ValueError: three is one too many" in error.message
    assert errors[6].message == "plugin Failing version 1: execute: numpy can't read an array on a GPU"


def test_kernels_that_can_not_be_are_named(process: stand_in.Process) -> None:
    wide, nothing, raising, absent, refused = process.run(jobs.odd_sources)
    assert "plugin Wide version 1: cuda_source asks for a block that no GPU has" in wide.message
    assert "plugin Nothing version 1: cuda_source: it gave no kernel" in nothing.message
    assert "plugin Raising version 1: cuda_source raised KeyError: 'none'" in raising.message
    assert "the kernel 'scale' of cuda_source" in absent.message.replace('"', "'")
    assert "plugin Scale version 1: cuda_source does not compile" in refused.message
    assert refused.got == "a source includes a file, and there is none"
    assert all(isinstance(error, nx.PluginError) for error in (wide, nothing, raising, refused))


X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


def want(x: np.ndarray, by: float) -> np.ndarray:
    return 1 / (1 + np.exp(-np.maximum(x.astype(np.float64), 0) * by))


@pytest.mark.gpu
@needs_gpu
def test_a_kernel_of_a_plugin_computes_on_a_gpu() -> None:
    made = jobs.model(jobs.Scale(3.0), fallback=False)
    for rows in (4, 4, 4, 4, 40, 40, 40, 4):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        np.testing.assert_allclose(made(x), want(x, 3.0), rtol=1e-5)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("capturable", [False, True])
def test_a_library_in_cpp_computes_on_a_gpu(copy: str, capturable: bool) -> None:
    trt.load_plugin_library(copy)
    made = jobs.model("Copy", {"capturable": capturable}, fallback=False)
    for rows in (4, 4, 4, 4, 40, 40, 40, 4):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        np.testing.assert_allclose(made(x), want(x, 1.0), rtol=1e-5)
    assert trt.deregister_plugin("Copy")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("capturable", [False, True])
def test_torch_in_a_plugin_computes_on_a_gpu(capturable: bool) -> None:
    torch = pytest.importorskip("torch")
    calls = []

    class Torch(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return input_shapes[0]

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            calls.append(stream)
            assert torch.cuda.current_stream().cuda_stream == stream
            torch.mul(torch.from_dlpack(inputs[0]), 3.0, out=torch.from_dlpack(outputs[0]))

    Torch.capturable = capturable
    torch.zeros(1, device="cuda")
    made = jobs.model(Torch(), fallback=False)
    calls.clear()
    for _ in range(8):
        np.testing.assert_allclose(made(X), want(X, 3.0), rtol=1e-5)
        on_device = made(torch.from_numpy(X).cuda())
        np.testing.assert_allclose(on_device.cpu().numpy(), want(X, 3.0), rtol=1e-5)
    assert (len(calls) < 16) == capturable


@pytest.mark.gpu
@needs_gpu
def test_the_example_of_the_api_gives_the_same_on_both_devices(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class MyLayer(trt.IPluginV2):
        def __init__(self, param):  # type: ignore[no-untyped-def]
            super().__init__()
            self.param = param

        def get_output_shape(self, input_shapes):  # type: ignore[no-untyped-def]
            return input_shapes[0]

        def execute(self, inputs, outputs, stream):  # type: ignore[no-untyped-def]
            torch.mul(torch.from_dlpack(inputs[0]), self.param, out=torch.from_dlpack(outputs[0]))

    torch.zeros(1, device="cuda")
    trt.register_plugin("MyLayer", MyLayer, replace=True)
    network = trt.Builder().create_network()
    network.mark_output(network.add_plugin_v2([network.add_input("x", trt.float32, ("n", 8))], "MyLayer", param=42))
    found = []
    for name in ("cpu", "cuda"):
        path = tmp_path / f"{name}.engine"
        backend = nx.hardware.get_backend(name, fallback=False)
        made = backend.optimize_model(network.to_network(), {"x": (4, 8)})
        made.save(path)
        found += [made(X), backend.load(path)(X)]
    for got in found:
        np.testing.assert_array_equal(got.view(np.int32), (X * np.float32(42)).view(np.int32))
    trt.deregister_plugin("MyLayer")


@pytest.mark.gpu
@needs_gpu
def test_a_plugin_of_the_processor_beside_a_gpu() -> None:
    made = jobs.model(jobs.OnHost())
    for _ in range(4):
        np.testing.assert_allclose(made(X), want(X, 1.0), rtol=1e-5)


@pytest.mark.gpu
@needs_gpu
def test_a_caller_can_not_record_what_can_not_be_recorded() -> None:
    torch = pytest.importorskip("torch")

    class Copy(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return input_shapes[0]

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            torch.from_dlpack(outputs[0]).copy_(torch.from_dlpack(inputs[0]))

    made = jobs.model(Copy(), fallback=False)
    x = torch.from_numpy(X).cuda()
    with pytest.raises(nx.UnsupportedError, match="records what can't be recorded"):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made(x)
