"""What the importer does before it reads a node: values that the caller knows, and models of old operator sets."""

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402

SQUEEZE = (
    '<ir_version: 8, opset_import: ["" : 20]> m (float[n,1,3] x, int64[1] axes) => (float[] y) {y = Squeeze(x, axes)}'
)
X = np.arange(6, dtype=np.float32).reshape(2, 1, 3)


def test_a_given_value_is_a_constant_and_no_input() -> None:
    model = TensorRTBackend().optimize_model(parser.parse_model(SQUEEZE), {"x": (2, 1, 3)}, input_values={"axes": [1]})
    assert [port.name for port in model.inputs] == ["x"]
    assert model(X).shape == (2, 3)


def test_without_its_value_the_refusal_says_what_must_be_known() -> None:
    with pytest.raises(nx.UnsupportedError, match="input 1 must be known when the model is imported") as caught:
        from_onnx(parser.parse_model(SQUEEZE.replace("int64[1] axes", "int64[k] axes")))
    assert "input_values" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"axis": [1]}, "the model has no input 'axis', of which a value is given"),
        ({"axes": [1, 2]}, "the given value does not fit the input"),
        ({"axes": [1.5]}, "the given value does not fit the input"),
        ({"axes": np.array([1], np.int32)}, "the given value does not fit the input"),
    ],
)
def test_values_that_do_not_fit_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(nx.InvalidArgumentError, match=message):
        from_onnx(parser.parse_model(SQUEEZE), input_values=values)


def test_values_are_for_onnx_models() -> None:
    with pytest.raises(nx.InvalidArgumentError, match="input_values are for ONNX models"):
        TensorRTBackend().optimize_model(nx.Network("n"), input_values={"axes": [1]})


def old_model(
    node: "onnx.NodeProto", shape: list[int], weights: dict[str, np.ndarray], opset: int
) -> "onnx.ModelProto":
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    ports += [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in weights.items()]
    held = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


@pytest.mark.parametrize(
    ("shape", "count", "axis"),
    [([3, 3, 3], 3, 1), ([2, 3, 4], 3, 1), ([2, 3, 4], 3, -2), ([2, 3], 2, 0), ([2, 3, 4], 4, 2), ([2, 3, 4], 4, None)],
)
def test_broadcasting_of_opset_6(shape: list[int], count: int, axis: int | None) -> None:
    x, bias = np.zeros(shape, np.float32), np.arange(count, dtype=np.float32)
    node = helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, **({} if axis is None else {"axis": axis}))
    y = from_onnx(old_model(node, shape, {"b": bias}, 6)).evaluate({"x": x})["y"]
    behind = 0 if axis is None else len(shape) - 1 - axis % len(shape)
    np.testing.assert_array_equal(y, np.broadcast_to(bias.reshape(-1, *[1] * behind), shape))


def test_slopes_of_opset_6_belong_to_channels() -> None:
    x, slope = -np.ones((2, 3, 3), np.float32), np.array([1, 2, 3], np.float32)
    node = helper.make_node("PRelu", ["x", "s"], ["y"])
    y = from_onnx(old_model(node, [2, 3, 3], {"s": slope}, 6)).evaluate({"x": x})["y"]
    np.testing.assert_array_equal(y, np.broadcast_to(-slope[:, None], (2, 3, 3)))


def test_what_the_converter_refuses_is_refused_in_its_words() -> None:
    node = helper.make_node("Pad", ["x"], ["y"], paddings=[0, 0, 1, 1, 0, 0, 1, 1])
    with pytest.raises(
        nx.UnsupportedError, match="older than ONNX's opset 7, and ONNX's version converter can't"
    ) as caught:
        from_onnx(old_model(node, [1, 1, 2, 2], {}, 1))
    assert caught.value.got == "opset 1"


def test_scales_that_follow_from_literals_and_fixed_shapes_are_known() -> None:
    text = """<ir_version: 8, opset_import: ["" : 20]> m (float[n,2,h,w] x) => (float[] y) {
        shape = Shape (x)
        numbers = Cast <to = 1> (shape)
        wanted = Constant <value_floats = [1.0, 2.0, 18.0, 10.0]> ()
        scales = Div (wanted, numbers)
        y = Resize <mode = "linear"> (x, , scales)
    }"""
    fixed = from_onnx(parser.parse_model(text), input_shapes={"x": (1, 2, 6, 4)})
    assert fixed.outputs["y"].shape == (1, 2, 18, 10)
    engine, free = (TensorRTBackend().optimize_model(model) for model in (fixed, parser.parse_model(text)))
    assert not [note for note in engine.report()["notes"] if "depend on data" in note]
    x = np.random.default_rng(0).random((1, 2, 6, 4), np.float32)
    np.testing.assert_allclose(free(x), engine(x), rtol=1e-6)
