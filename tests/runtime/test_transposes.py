"""A Transpose that the layouts around it undo moves nothing: what TensorFlow's convolutions stand between."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend

BLOCK = """<ir_version: 8, opset_import: ["" : 17]>
block (float[N, H, W, 32] x) => (float[N, H, W, 32] y) {
    planes = Transpose <perm = [0, 3, 1, 2]> (x)
    c = Conv <group = 32, pads = [3, 3, 3, 3]> (planes, depthwise)
    rows = Transpose <perm = [0, 2, 3, 1]> (c)
    n = LayerNormalization <axis = -1> (rows, scale, shift)
    wide = MatMul (n, up)
    active = Relu (wide)
    narrow = MatMul (active, down)
    sum = Add (narrow, x)
    again = Transpose <perm = [0, 3, 1, 2]> (sum)
    d = Conv <group = 32, pads = [3, 3, 3, 3]> (again, depthwise)
    y = Transpose <perm = [0, 2, 3, 1]> (d)
}"""
WEIGHTS = {"depthwise": (32, 1, 7, 7), "scale": (32,), "shift": (32,), "up": (32, 64), "down": (64, 32)}


def block() -> bytes:
    model, random = parser.parse_model(BLOCK), np.random.default_rng(5)
    for name, shape in WEIGHTS.items():
        values = (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("level", [0, 3])
def test_transposes_around_convolutions_move_nothing(level: int) -> None:
    data = block()
    backend = TensorRTBackend(optimization_level=level)
    model = backend.optimize_model(data, {"x": [(1, 4, 4, 32), (2, 16, 16, 32), (4, 32, 32, 32)]})
    for shape in [(2, 16, 16, 32), (1, 5, 4, 32), (4, 32, 17, 32)]:
        x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
        (wanted,) = ReferenceEvaluator(data).run(None, {"x": x})
        np.testing.assert_allclose(model(x), wanted, rtol=2e-5, atol=2e-5)
    transposes = [kernel for kernel in model.report()["kernels"] if kernel["kernel"] == "Transpose"]
    assert [kernel["implementation"] for kernel in transposes] == [""] * 4, transposes


def test_one_that_no_layout_undoes_is_a_copy() -> None:
    x = helper.make_tensor_value_info("x", 1, [2, 3, 4, 5])
    y = helper.make_tensor_value_info("y", 1, [2, 4, 5, 3])
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])
    graph = helper.make_graph([node], "turn", [x], [y])
    model = nx.optimize(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    given = np.random.default_rng(3).standard_normal((2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(model(given), given.transpose(0, 2, 3, 1))
