"""The models of the kept engine files in `tests/data`, and what they give.

`python -m tests.engine.versions` writes the files that are not there yet, with the format version of the code at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import neurenix as nx
from fuzz.engine_file import File
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

DATA = Path(__file__).parents[1] / "data"
RANGES = [{"x": nx.Shape((1, 8), (2, 8), (4, 8)), "z": nx.Shape((1, 4), (2, 4), (4, 4))},
          {"x": nx.Shape((2, 8), (6, 8), (8, 8)), "z": nx.Shape((2, 4), (6, 4), (8, 4))}]  # fmt: skip
WEIGHTS = (np.arange(32, dtype=np.float32).reshape(8, 4) - 16) / 8
BIAS = np.arange(4, dtype=np.float32)

Arrays = dict[str, Any]


def plain() -> nx.Network:
    """relu(x @ WEIGHTS + BIAS) + z, in rows of two."""
    network = nx.Network("plain")
    x, z = network.add_input("x", "float32", ["n", 8]), network.add_input("z", "float32", ["m", 4])
    product = network.add_layer("MatMul", [x, network.add_constant("w", WEIGHTS)], name="product")[0]
    biased = network.add_layer("Add", [product, network.add_constant("b", BIAS)], name="biased")[0]
    total = network.add_layer("Add", [network.add_layer("Relu", [biased], name="relu")[0], z], name="total")[0]
    rows = network.add_constant("rows", np.array([-1, 2]))
    network.mark_output(network.add_layer("Reshape", [total, rows], name="rows_of_two")[0], "y")
    return network


def branches() -> nx.Network:
    """2 x or x - 1."""
    from onnx import parser

    text = """<ir_version: 10, opset_import: ["" : 21]> m (bool c, float[n,4] x) => (float[n,4] y) {
        y = If (c) <then_branch = t () => (float[n,4] p) { p = Add(x, x) },
                    else_branch = e () => (float[n,4] q) { one = Constant<value_float = 1.0>() q = Sub(x, one) }> }"""
    return from_onnx(parser.parse_model(text))


def sample(rows: int) -> Arrays:
    """Inputs of the plain model."""
    rng = np.random.default_rng(rows)
    return {"x": rng.standard_normal((rows, 8)).astype(np.float32), "z": rng.random((rows, 4)).astype(np.float32)}


def expected(given: Arrays) -> Any:
    """What the plain model gives, in float64."""
    x, z = (given[name].astype(np.float64) for name in "xz")
    return (np.maximum(x @ WEIGHTS.astype(np.float64) + BIAS, 0) + z).reshape(-1, 2)


def _backend(level: int) -> TensorRTBackend:
    return TensorRTBackend(threads=1, optimization_level=level, timing_cache=False)


#: Files of older versions, which no code writes any more.
OLDER = ("engine-1.engine", "engine-1-stages.engine", "engine-2.engine", "engine-3.engine")
#: Those of the versions that are written, with all fields that there are, and how they come about.
FILES: dict[str, Callable[[], nx.OptimizedModel]] = {
    "engine-4.engine": lambda: _backend(1).optimize_model(
        plain(), RANGES, refittable=True, deterministic=False, exclude={"cuda": ["Relu"]}, workspace_size=1 << 20
    ),
    "engine-5.engine": lambda: _backend(0).optimize_model(plain(), RANGES, "bf16", deterministic=True),
    "engine-3-stages.engine": lambda: _backend(0).optimize_model(branches(), deterministic=True),
}


def write(path: Path, build: Callable[[], nx.OptimizedModel]) -> None:
    """Writes a file; its times are those of a machine that nobody has."""
    build().save(path)
    file = File.read(path.read_bytes())
    times = file.header["times"].items()
    file.header["times"] = {key.replace("processor ", "processor of nobody, ", 1): time for key, time in times}
    for _, conditions in file.header["built"]["devices"]:
        conditions["processor"] = "of nobody, " + conditions["processor"]
    path.write_bytes(file.written())


if __name__ == "__main__":
    for name, build in FILES.items():
        if not (DATA / name).exists():
            write(DATA / name, build)
