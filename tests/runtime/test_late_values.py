"""Axes, sizes and scales that come with the call, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import onnxruntime as ort
from onnx import parser

from neurenix.hardware.tensorrt import TensorRTBackend

Inputs = dict[str, np.ndarray[Any, Any]]
X = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
TALL = np.random.default_rng(1).standard_normal((1, 2, 6, 4)).astype(np.float32)


def ints(*values: int) -> np.ndarray[Any, Any]:
    """An int64 vector."""
    return np.array(values, np.int64)


#: What the graph takes, what it does, and the inputs.
CASES: dict[str, tuple[str, str, Inputs]] = {
    "ReduceMean": ("int64[2] a", "y0 = ReduceMean <keepdims = 0> (x, a)", {"x": X, "a": ints(0, -1)}),
    "ReduceL2, kept": ("int64[1] a", "y0 = ReduceL2 (x, a)", {"x": X, "a": ints(1)}),
    "Unsqueeze": ("int64[2] a", "y0 = Unsqueeze (x, a)", {"x": X, "a": ints(3, 0)}),
    "Squeeze": ("int64[1] a", "u = ReduceMax (x) y0 = Squeeze (u, a)", {"x": X, "a": ints(-2)}),
    "Split": ("int64[3] s", "y0, y1, y2 = Split <axis = 1> (x, s)", {"x": X, "s": ints(1, 0, 5)}),
    "Split, equal": ("int64[1] s", "y0, y1 = Split <axis = 1, num_outputs = 2> (x)", {"x": X, "s": ints(0)}),
    "Slice": (
        "int64[2] b, int64[2] e, int64[2] a, int64[2] s",
        "y0 = Slice (x, b, e, a, s)",
        {"x": X, "b": ints(-1, 0), "e": ints(-5, 9), "a": ints(1, 2), "s": ints(-2, 3)},
    ),
    "Pad": ("int64[2] p, int64[1] a", "n = Neg(x) y0 = Pad (n, p, , a)", {"x": X, "p": ints(1, 2), "a": ints(2)}),
    "Resize": (
        "float[4] s",
        'y0 = Resize <mode = "linear"> (x, , s)',
        {"x": TALL, "s": np.array([1, 1, 1.5, 2], np.float32)},
    ),
    "what follows": (
        "int64[1] a",
        "m = ReduceMean (x, a) s = Softmax <axis = 1> (m) y0 = Relu (s)",
        {"x": X, "a": ints(2)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    ports, nodes, inputs = CASES[name]
    dims = ", ".join("bcdh"[: inputs["x"].ndim])
    results = [f"y{i}" for i in range(3) if f"y{i}" in nodes]
    outputs = ", ".join(f"float[{r}] {r}" for r in results)
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[{dims}] x, {ports}) => ({outputs}) {{ {nodes} }}"""
    proto = parser.parse_model(text)
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    want = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(results, inputs)
    backend = TensorRTBackend()
    optimized = backend.optimize_model(proto)
    optimized.save(tmp_path / "a.engine")
    for engine in (optimized, backend.load(tmp_path / "a.engine")):
        for answer, expected in zip(engine.run(inputs).values(), want, strict=True):
            assert answer.shape == expected.shape
            np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)
