"""Small models for the tests of the server, with what they compute in numpy.

`python -m tests.serve.models FOLDER` writes them as a Triton model repository for its own ONNX backend, so that the
tests of the protocol can be run against a real Triton: SERVE_TEST_HTTP and SERVE_TEST_GRPC say where that listens.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

#: The dtypes that the model `kinds` passes on, by the protocol's names.
KINDS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "INT8": TensorProto.INT8,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "UINT64": TensorProto.UINT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
}


def weights(seed: int = 0, hidden: int = 32) -> dict[str, Array]:
    """The weights of `mlp`."""
    generator = np.random.default_rng(seed)
    shapes = {"w1": (16, hidden), "b1": (hidden,), "w2": (hidden, 4), "b2": (4,)}
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def mlp_reference(x: Array, seed: int = 0) -> Array:
    """What `mlp` computes, in float64."""
    w = {name: array.astype(np.float64) for name, array in weights(seed).items()}
    return np.asarray(np.maximum(x.astype(np.float64) @ w["w1"] + w["b1"], 0) @ w["w2"] + w["b2"])


def mlp(seed: int = 0, hidden: int = 32) -> onnx.ModelProto:
    """(batch, 16) -> (batch, 4): a perceptron with one hidden layer."""
    nodes = [
        helper.make_node("Gemm", ["input", "w1", "b1"], ["a"]),
        helper.make_node("Relu", ["a"], ["h"]),
        helper.make_node("Gemm", ["h", "w2", "b2"], ["output"]),
    ]
    return _model(
        nodes, [("input", TensorProto.FLOAT, ["batch", 16])], [("output", TensorProto.FLOAT, ["batch", 4])],
        weights(seed, hidden),
    )  # fmt: skip


def kinds() -> onnx.ModelProto:
    """Passes arrays (batch, 3) of several dtypes on, each to an output of its own."""
    nodes = [helper.make_node("Identity", [f"in_{name}"], [f"out_{name}"]) for name in KINDS]
    inputs = [(f"in_{name}", kind, ["batch", 3]) for name, kind in KINDS.items()]
    outputs = [(f"out_{name}", kind, ["batch", 3]) for name, kind in KINDS.items()]
    return _model(nodes, inputs, outputs, {})


def rows() -> onnx.ModelProto:
    """(batch, 1) int64 -> (batch, 1, 4): rows of a table of ten; other indices are refused when it runs."""
    table = np.arange(40, dtype=np.float32).reshape(10, 4)
    nodes = [helper.make_node("Gather", ["table", "index"], ["row"], axis=0)]
    return _model(
        nodes, [("index", TensorProto.INT64, ["batch", 1])], [("row", TensorProto.FLOAT, ["batch", 1, 4])],
        {"table": table},
    )  # fmt: skip


def mixing() -> onnx.ModelProto:
    """(n, 4) -> (n, 4): a softmax over the first dimension, which is no batch."""
    nodes = [helper.make_node("Softmax", ["input"], ["output"], axis=0)]
    port = [TensorProto.FLOAT, ["n", 4]]
    return _model(nodes, [("input", *port)], [("output", *port)], {})


def fixed() -> onnx.ModelProto:
    """(2, 3) -> (2, 3): twice the input, without a batch."""
    nodes = [helper.make_node("Add", ["input", "input"], ["output"])]
    port = [TensorProto.FLOAT, [2, 3]]
    return _model(nodes, [("input", *port)], [("output", *port)], {})


def text() -> onnx.ModelProto:
    """(n) -> (n): lengths of sentences of any length; the second dimension is one that each request says."""
    nodes = [helper.make_node("ReduceSum", ["ids", "axes"], ["total"], keepdims=1)]
    return _model(
        nodes, [("ids", TensorProto.INT64, ["batch", "tokens"])], [("total", TensorProto.INT64, ["batch", 1])],
        {"axes": np.array([1], np.int64)},
    )  # fmt: skip


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Array]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "test",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


MODELS = {"mlp": mlp, "kinds": kinds, "rows": rows, "fixed": fixed, "text": text}


def write_repository(folder: Path) -> Path:
    """Writes all models in the shape of a model repository."""
    for name, make in MODELS.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        onnx.save(make(), version / "model.onnx")
        batch = 0 if name == "fixed" else 16
        lines = [f'name: "{name}"', 'platform: "onnxruntime_onnx"', f"max_batch_size: {batch}"]
        lines += ["dynamic_batching { max_queue_delay_microseconds: 100 }"] if batch else []
        (folder / name / "config.pbtxt").write_text("\n".join(lines) + "\n")
    return folder


if __name__ == "__main__":
    write_repository(Path(sys.argv[1]))
