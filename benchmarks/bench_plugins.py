"""What a plugin costs on a GPU beside its own work: in CUDA C++ inside the CUDA graph, in Python between two graphs.

    python -m benchmarks.bench_plugins

`Library` is one in C++ out of a shared library, which puts a copy into the graph. Chains of one and of many plugins
between two layers of ours, on arrays on the GPU: what one more plugin adds to a call holds its kernel and all that the
engine does around it. `host_us` is a whole call from Python until its work is done.
Results go to benchmarks/results/plugins.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from benchmarks import measure
from benchmarks.bench_cuda import timed

CODE = """
extern "C" __global__ void scale(const float* x, float* y, int count, float by) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = x[at] * by;
}
"""
#: Elements of a row: the kernel is over as soon as it has begun.
COLUMNS = 256
MANY = 17
LIBRARY = "Library"


class Kernel(trt.IPluginV2):
    """A kernel that does next to nothing."""

    devices = ("cuda",)

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        return input_shapes[0]

    def cuda_source(self, inputs: list[Any], outputs: list[Any]) -> trt.CudaSource:
        count = trt.volume(inputs[0].dims)
        return trt.CudaSource(CODE, "scale", (count + 127) // 128, 128, arguments=(count, 1.5))


class Empty(trt.IPluginV2):
    """Python that does nothing: what is left is the way there and back."""

    devices = ("cuda",)

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        return input_shapes[0]

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        return None


class Copy(Empty):
    """Python that puts one kernel of torch's into the stream."""

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        import torch

        torch.mul(torch.from_dlpack(inputs[0]), 1.5, out=torch.from_dlpack(outputs[0]))


def load_library() -> None:
    """Compiles and opens the plugin in C++ of the tests: a copy, which a graph may record."""
    source = Path(__file__).parents[1] / "tests" / "plugins" / "copy_plugin.cc"
    built = str(Path(tempfile.mkdtemp()) / "copy.so")
    include = ["-I", str(trt.plugin_include_dir())]
    subprocess.run(["g++", "-std=c++17", "-O2", "-fPIC", "-shared", *include, source, "-o", built, "-ldl"], check=True)
    trt.load_plugin_library(built)


def chain(plugin: Any, count: int) -> nx.OptimizedModel:
    """So many plugins between two layers."""
    network = trt.Builder().create_network()
    tensor = network.add_activation(network.add_input("x", trt.float32, (1, COLUMNS)), trt.ActivationType.RELU)
    for _ in range(count):
        layer = ("Copy", {"capturable": True}) if plugin == LIBRARY else (plugin(), {})
        tensor = network.add_plugin_v2([tensor], layer[0], **layer[1])
    network.mark_output(network.add_activation(tensor, trt.ActivationType.SIGMOID))
    return nx.hardware.get_backend("cuda", fallback=False).optimize_model(network.to_network())


def host(call: Callable[[], Any], rounds: int) -> float:
    """Microseconds of a whole call, until its work is done."""
    import torch

    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return round(float(np.median(times)) * 1e6, 2)


def main() -> None:
    """The command."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    x = torch.randn(1, COLUMNS, device="cuda")
    found: dict[str, Any] = {}
    load_library()
    for name, plugin in {"Kernel": Kernel, LIBRARY: LIBRARY, "Empty": Empty, "Copy": Copy}.items():
        row: dict[str, Any] = {}
        for count in (0, 1, MANY):
            model = chain(plugin, count)
            call = lambda model=model: model(x)  # noqa: E731
            row[str(count)] = timed(call, rounds) | {"host_us": host(call, rounds)}
        more = (row[str(MANY)]["median_ms"] - row["1"]["median_ms"]) / (MANY - 1)
        row["one_more_us"] = round(1e3 * more, 2)
        found[name] = row
        print(name, json.dumps(row))
    result = {"device": torch.cuda.get_device_name(), "neurenix": nx.__version__, "plugins": found}
    (measure.RESULTS / "plugins.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
