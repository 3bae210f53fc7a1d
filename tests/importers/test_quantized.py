"""Quantized ops that are imported as smaller ones, against ONNX Runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import neurenix as nx
from neurenix.importers import from_onnx
from tests import exact_onnxruntime
from tests.importers.single import Array, agree, model_of

RNG = np.random.default_rng(7)
whole = partial(exact_onnxruntime.whole, RNG)


def scale(*values: float) -> Array:
    return np.asarray(values[0] if len(values) == 1 else values, np.float32)


@pytest.mark.parametrize("data", [RNG.normal(3, 2, (3, 4, 5)), RNG.random((7, 9)), -RNG.random(11), np.zeros((2, 3))])
def test_dynamic_quantize_linear(data: Array) -> None:
    agree("DynamicQuantizeLinear", {"x": data.astype(np.float32)}, ("y", "scale", "zero"))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("held", [(), ("b", "b_scale", "b_zero")])
def test_qlinear_matmul(dtype: str, held: tuple[str, ...]) -> None:
    inputs = {
        "a": whole(dtype, 2, 5, 300),
        "a_scale": scale(0.013),
        "a_zero": whole(dtype),
        "b": whole(dtype, 300, 7),
        "b_scale": scale(0.021),
        "b_zero": whole(dtype),
        "y_scale": scale(2.7),
        "y_zero": whole(dtype),
    }
    agree("QLinearMatMul", inputs, constants=held)


def test_qlinear_matmul_with_a_scale_for_each_column() -> None:
    inputs = {
        "a": whole("uint8", 5, 64),
        "a_scale": scale(0.013),
        "a_zero": whole("uint8"),
        "b": whole("int8", 64, 3),
        "b_scale": scale(0.02, 0.3, 0.01),
        "b_zero": np.zeros(3, np.int8),
        "y_scale": scale(1.7),
        "y_zero": whole("uint8"),
    }
    agree("QLinearMatMul", inputs, constants=list(inputs)[1:])


@pytest.mark.parametrize(
    "attrs", [{}, {"pads": [1, 1, 1, 1], "strides": [2, 1]}, {"auto_pad": "SAME_UPPER"}, {"group": 2}]
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("channels", [6, 1])
def test_qlinear_conv(attrs: dict[str, Any], bias: bool, channels: int) -> None:
    group = attrs.get("group", 1)
    channels = max(channels, group)
    inputs: dict[str, Array | None] = {
        "x": whole("uint8", 2, 8, 6, 5),
        "x_scale": scale(0.021),
        "x_zero": whole("uint8"),
        "w": whole("int8", channels, 8 // group, 3, 3),
        "w_scale": RNG.uniform(0.005, 0.02, channels).astype(np.float32),
        "w_zero": np.zeros(channels, np.int8),
        "y_scale": scale(0.51),
        "y_zero": whole("uint8"),
        "bias": RNG.integers(-9000, 9000, channels, np.int32) if bias else None,
    }
    agree("QLinearConv", inputs, constants=[n for n in list(inputs)[1:] if inputs[n] is not None], **attrs)


@pytest.mark.parametrize("dtype", ["INT4", "UINT4", "FLOAT8E4M3FN", "FLOAT8E5M2"])
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("how", [{}, {"axis": 0}, {"axis": 1, "block_size": 4}])
def test_narrow_constants_are_dequantized(dtype: str, zero: bool, how: dict[str, int]) -> None:
    kind = TensorProto.DataType.Value(dtype)
    numbers = RNG.integers(0 if dtype == "UINT4" else -7, 8, (3, 8)).astype(np.float32)
    shape = (3, 2) if "block_size" in how else (3,) if how else ()
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", *(["z"] if zero else [])], ["y"], "node", **how)]
    held = [
        helper.make_tensor("w", kind, (3, 8), numbers.ravel()),
        numpy_helper.from_array(RNG.uniform(0.1, 1, shape).astype(np.float32), "s"),
        helper.make_tensor("z", kind, shape, np.zeros(shape).ravel() + (dtype == "INT4")),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 8))]
    graph = helper.make_graph(nodes, "narrow", [], outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    want = ReferenceEvaluator(model).run(None, {})[0]
    np.testing.assert_allclose(from_onnx(model).evaluate({})["y"], want, rtol=1e-6)


def test_a_dtype_that_the_network_does_not_know_is_refused() -> None:
    model = model_of("DequantizeLinear", {"x": whole("int8", 2, 3), "scale": scale(1)}, ("y",))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    with pytest.raises(nx.UnsupportedError, match="COMPLEX64"):
        from_onnx(model)


def test_blocks_along_an_axis_of_unknown_extent_are_refused() -> None:
    inputs = {"x": RNG.random((4, 6)).astype(np.float32), "scale": np.ones((4, 2), np.float32)}
    model = model_of("QuantizeLinear", inputs, ("y",), constants=["scale"], block_size=3)
    with pytest.raises(nx.UnsupportedError, match="extent of its axis"):
        from_onnx(model, input_shapes={"x": (4, "n")})
