"""What the tests run in a process that sees the recorded device (`tests/cuda/stand_in.py`)."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.hardware import get_backend
from tests.cuda.jobs import error_of, kernels, leaves_nothing
from tests.cuda.stand_in import Recorded

CODE = """
extern "C" __global__ void scale(const float* x, float* y, unsigned char* scratch, int count, float by, double unused) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = x[at] * by;
}
"""


class Scale(trt.IPluginV2):
    """A kernel of its own, whose launch follows from the shapes; on the processor numpy."""

    def __init__(self, by: float, code: str = CODE) -> None:
        self.by, self.code = by, code

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        return input_shapes[0]

    def get_workspace_size(self, inputs: list[Any], outputs: list[Any]) -> int:
        return 256

    def cuda_source(self, inputs: list[trt.PluginTensorDesc], outputs: list[trt.PluginTensorDesc]) -> trt.CudaSource:
        count = int(np.prod(inputs[0].dims))
        arguments = (count, self.by, np.float64(0.5))
        return trt.CudaSource(self.code, "scale", grid=(count + 127) // 128, block=128, arguments=arguments)

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        np.multiply(inputs[0], np.float32(self.by), out=outputs[0])


class Python(trt.IPluginV2):
    """Python code that puts a copy into the stream."""

    calls: list[tuple[int, int]] = []  # noqa: RUF012

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        return input_shapes[0]

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        source, target = inputs[0].__cuda_array_interface__, outputs[0].__cuda_array_interface__
        assert source["shape"] == inputs[0].shape and source["typestr"] == "<f4" and source["strides"] is None
        assert inputs[0].__dlpack_device__() == (2, 0) and type(inputs[0].__dlpack__()).__name__ == "PyCapsule"
        self.calls.append((inputs[0].shape[0], stream))
        status = _driver().cuMemcpyAsync(
            ctypes.c_uint64(target["data"][0]),
            ctypes.c_uint64(source["data"][0]),
            ctypes.c_size_t(inputs[0].nbytes),
            ctypes.c_void_p(stream),
        )
        assert status == 0, status


class Captured(Python):
    """The same, which a graph may record."""

    capturable = True


class OnHost(Python):
    """What the GPU does not run."""

    devices = ("cpu",)

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        outputs[0][...] = inputs[0]


class Failing(Python):
    """Fails at one size in its own way, and at another since numpy can't."""

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        if inputs[0].shape[0] == 6:
            np.multiply(inputs[0], 2)
        if inputs[0].shape[0] == 3:
            raise ValueError("three is one too many")
        super().execute(inputs, outputs, stream)


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["NEURENIX_CUDA_LIBRARIES"] + "/libcuda.so.1")


def model(plugin: Any, fields: dict[str, Any] | None = None, **options: Any) -> nx.OptimizedModel:
    """A plugin between two layers of the GPU's."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, ("n", 8))
    layer = network.add_plugin_v2([network.add_activation(x, trt.ActivationType.RELU)], plugin, **(fields or {}))
    layer.name = "mine"
    network.mark_output(network.add_activation(layer, trt.ActivationType.SIGMOID))
    given: dict[str, Any] = {"timing_cache": False, "threads": 2} | options
    backend = get_backend("cuda", fallback=given.pop("fallback", True))
    return backend.optimize_model(network.to_network(), {"x": nx.Shape((1, 8), (4, 8), (64, 8))}, **given)


def call(made: nx.OptimizedModel, rows: int = 4) -> None:
    """Runs it on zeros."""
    assert made(np.zeros((rows, 8), np.float32)).shape == (rows, 8)


@leaves_nothing
def launched() -> tuple[list[tuple[str, str]], list[str], list[int]]:
    """Who runs what of a kernel that a plugin brings, its launches, and the graphs and launches of a later call."""
    recorded = Recorded()
    made = model(Scale(3.0), fallback=False)
    recorded.forget("launches")
    call(made, 4)
    first = [line for line in recorded.lines("launches") if line.startswith("scale")]
    call(made, 40)
    first += [line for line in recorded.lines("launches") if line.startswith("scale")][1:]
    for _ in range(4):
        call(made, 4)
    before = [recorded.count(name) for name in ("cuGraphLaunch", "cuLaunchKernelEx")]
    call(made, 4)
    after = [recorded.count(name) for name in ("cuGraphLaunch", "cuLaunchKernelEx")]
    return kernels(made), first, [b - a for a, b in zip(before, after, strict=True)]


@leaves_nothing
def python(capturable: bool) -> tuple[list[tuple[str, str]], list[int], int]:
    """Who runs what of a plugin in Python, how many graphs each call launches, and how often Python ran."""
    recorded, cls = Recorded(), Captured if capturable else Python
    made = model(cls(), fallback=False)
    Python.calls.clear()
    graphs = []
    for _ in range(8):
        before = recorded.count("cuGraphLaunch")
        call(made)
        graphs.append(recorded.count("cuGraphLaunch") - before)
    assert all(rows == 4 and stream != 0 for rows, stream in Python.calls)
    return kernels(made), graphs, len(Python.calls)


@leaves_nothing
def library(path: str, capturable: bool) -> tuple[list[tuple[str, str]], list[int]]:
    """Who runs what of a plugin in C++, and how many graphs each call launches."""
    trt.load_plugin_library(path)
    recorded, made = Recorded(), model("Copy", {"capturable": capturable}, fallback=False)
    graphs = []
    for _ in range(8):
        before = recorded.count("cuGraphLaunch")
        call(made)
        graphs.append(recorded.count("cuGraphLaunch") - before)
    return kernels(made), graphs


@leaves_nothing
def on_host() -> tuple[list[tuple[str, str]], list[dict[str, str]]]:
    """Who runs what of a plugin that the GPU does not run, and why."""
    made = model(OnHost())
    for _ in range(4):
        call(made)
    return kernels(made), made.report()["refusals"]


def alone() -> nx.Error | None:
    """What a build says that may use the GPU alone."""
    return error_of(lambda: model(OnHost(), fallback=False))


@leaves_nothing
def failing() -> list[nx.Error | None]:
    """What calls say of which the second one fails."""
    made = model(Failing())
    return [error_of(lambda rows=rows: call(made, rows)) for rows in (4, 3, 4, 3, 5, 4, 6)]  # type: ignore[misc]


def odd_sources() -> list[nx.Error | None]:
    """What builds say of kernels that can't be."""

    class Wide(Scale):
        def cuda_source(self, inputs: Any, outputs: Any) -> Any:
            return trt.CudaSource(CODE, "scale", grid=1, block=(64, 64))

    class Nothing(Scale):
        def cuda_source(self, inputs: Any, outputs: Any) -> Any:
            return "code"

    class Raising(Scale):
        def cuda_source(self, inputs: Any, outputs: Any) -> Any:
            raise KeyError("none")

    absent = Scale(1.0, CODE.replace("scale", "other"))
    plugins = (Wide(1.0), Nothing(1.0), Raising(1.0), absent, Scale(1.0, "#include <nowhere.h>\n" + CODE))
    return [error_of(lambda p=p: call(model(p))) for p in plugins]  # type: ignore[misc]


@leaves_nothing
def detected() -> tuple[list[tuple[str, str]], list[str], list[int]]:
    """Who runs what of EfficientNMS behind a layer of the GPU's, its launches, and those of a later call."""
    recorded, network = Recorded(), trt.Builder().create_network()
    scores = network.add_activation(network.add_input("scores", trt.float32, ("n", 50, 3)), trt.ActivationType.SIGMOID)
    layer = network.add_plugin_v2([network.add_input("boxes", trt.float32, ("n", 50, 4)), scores], "EfficientNMS_TRT")
    for index in range(4):
        network.mark_output(layer.get_output(index))
    shapes = {name: nx.Shape((1, 50, k), (4, 50, k), (8, 50, k)) for name, k in (("scores", 3), ("boxes", 4))}
    backend = get_backend("cuda", fallback=False)
    made = backend.optimize_model(network.to_network(), shapes, timing_cache=False, threads=2)

    def run(n: int) -> None:
        found = made(np.zeros((n, 50, 3), np.float32), np.zeros((n, 50, 4), np.float32))
        assert [x.shape for x in found] == [(n, 1), (n, 100, 4), (n, 100), (n, 100)]

    recorded.forget("launches")
    run(1)
    run(5)
    first = sorted({line for line in recorded.lines("launches") if line.startswith("efficient_nms")})
    for _ in range(4):
        run(1)
    before = [recorded.count(name) for name in ("cuGraphLaunch", "cuLaunchKernelEx")]
    run(1)
    after = [recorded.count(name) for name in ("cuGraphLaunch", "cuLaunchKernelEx")]
    return kernels(made), first, [b - a for a, b in zip(before, after, strict=True)]


@leaves_nothing
def made_of_layers() -> list[tuple[str, str]]:
    """Who runs what of the plugins that are made of layers."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, ("n", 4, 9, 9))
    offset = network.add_input("offset", trt.float32, ("n", 18, 9, 9))
    weights = network.add_constant((6, 4, 3, 3), np.ones((6, 4, 3, 3), np.float32))
    grid = network.add_input("grid", trt.float32, ("n", 5, 5, 2))
    y = network.add_plugin_v2([x, offset, weights], "MMCVDeformConv2d", padding=1)
    network.mark_output(network.add_plugin_v2([y, grid], "grid_sampler", interpolation_mode=2, padding_mode=1))
    backend = get_backend("cuda", fallback=False)
    return kernels(backend.optimize_model(network.to_network(), timing_cache=False, threads=2))
