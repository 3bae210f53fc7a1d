"""ONNX nodes of unknown ops and domains are plugins of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.importers import from_onnx
from tests.plugins.classes import MyLayer

onnx = pytest.importorskip("onnx")
helper, numpy_helper, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT
X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def model(*nodes: Any, outputs: tuple[str, ...] = ("y",), weights: Any = ()) -> Any:
    ports = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    x = helper.make_tensor_value_info("x", FLOAT, ["n", 4])
    graph = helper.make_graph(list(nodes), "g", [x], ports, list(weights))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(proto: Any, x: np.ndarray = X) -> Any:
    return nx.hardware.get_backend("cpu").optimize_model(proto)(x)


@pytest.mark.parametrize("domain", ["", "com.acme"])
def test_a_node_is_a_plugin_and_its_attributes_are_fields(domain: str, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    class Everything(MyLayer):
        def __init__(self, **fields: Any) -> None:
            super().__init__(fields["factor"])
            seen.append(fields)

    trt.register_plugin("Everything", Everything)
    held = numpy_helper.from_array(np.arange(6, dtype=np.int16).reshape(2, 3))
    attrs = {"factor": 3, "slope": 0.5, "mode": "linear", "pads": [1, 2], "scales": [0.5, 2.0], "held": held}
    proto = model(
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Everything", ["a"], ["b"], name="here", domain=domain, **attrs),
        helper.make_node("Neg", ["b"], ["y"]),
    )
    np.testing.assert_array_equal(run(proto), -np.maximum(X, 0) * 3)
    for fields in seen:
        np.testing.assert_array_equal(fields.pop("held"), np.arange(6).reshape(2, 3))
        assert fields == {"factor": 3, "slope": 0.5, "mode": "linear", "pads": [1, 2], "scales": [0.5, 2.0]}
    layer = next(layer for layer in from_onnx(proto).layers if layer.op == "Plugin")
    assert layer.name == "here" and layer.attrs["plugin"]["name"] == "Everything"


def test_version_and_namespace_are_attributes_or_the_domain() -> None:
    class Plus(MyLayer):
        def execute(self, inputs, outputs, stream):  # type: ignore[no-untyped-def]
            np.add(inputs[0], self.param, out=outputs[0])

    def node(**attrs: Any) -> Any:
        return model(helper.make_node("MyLayer", ["x"], ["y"], domain="com.acme", param=2, **attrs))

    np.testing.assert_array_equal(run(node()), X * 2)
    trt.register_plugin("MyLayer", Plus, version="2")
    trt.register_plugin("MyLayer", Plus, version="5", namespace="far")
    np.testing.assert_array_equal(run(node()), X * 2)
    np.testing.assert_array_equal(run(node(plugin_version="2")), X + 2)
    np.testing.assert_array_equal(run(node(plugin_namespace="far")), X + 2)
    np.testing.assert_array_equal(run(node(plugin_version="5", plugin_namespace="far")), X + 2)
    trt.register_plugin("MyLayer", Plus, namespace="com.acme")
    np.testing.assert_array_equal(run(node()), X + 2)
    with pytest.raises(nx.UnsupportedError, match="can't be imported") as raised:
        run(node(plugin_version="9", plugin_namespace="far"))
    assert "trt.register_plugin('MyLayer', YourClass, version='9', namespace='far')" in str(raised.value.hint)


def test_fields_become_the_types_that_a_creator_declares() -> None:
    seen: list[Any] = []

    class Creator(trt.IPluginCreator):
        name = "Typed"
        field_names = trt.PluginFieldCollection([trt.PluginField("declared", None, trt.PluginFieldType.INT64)])

        def create_plugin(self, name: str, fc: Any) -> Any:
            seen.extend((field.name, field.type.name, np.asarray(field.data).tolist()) for field in fc)
            return MyLayer(1)

    assert trt.get_plugin_registry().register_creator(Creator(), "")
    run(model(helper.make_node("Typed", ["x"], ["y"], declared=[1, 2], count=3, slope=0.5, mode="same")))
    typed = [
        ("count", "INT32", [3]),
        ("declared", "INT64", [1, 2]),
        ("mode", "CHAR", b"same"),
        ("slope", "FLOAT32", [0.5]),
    ]
    assert seen[:4] == typed


def test_several_outputs_one_of_which_nobody_wants() -> None:
    node = helper.make_node("Halves", ["x"], ["y", ""], domain="com.acme")
    np.testing.assert_array_equal(run(model(node)), X[:, :2])
    node = helper.make_node("Halves", ["x"], ["y", "i", "none"], domain="com.acme")
    with pytest.raises(nx.UnsupportedError, match="output 2 of Halves is not supported") as raised:
        run(model(node))
    assert "at most 2, the number of outputs that plugin Halves gives" in str(raised.value)


def test_weights_are_inputs_like_others() -> None:
    class Dot(trt.IPluginV2):
        def get_output_shape(self, input_shapes: Any) -> Any:
            return (input_shapes[0][0], input_shapes[1][1])

        def execute(self, inputs: Any, outputs: Any, stream: int) -> None:
            np.matmul(inputs[0], inputs[1], out=outputs[0])

    trt.register_plugin("Dot", Dot)
    w = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    proto = model(helper.make_node("Dot", ["x", "w"], ["y"]), weights=[numpy_helper.from_array(w, "w")])
    np.testing.assert_allclose(run(proto), X @ w, rtol=1e-6)


def test_what_is_not_registered_is_listed_with_what_to_register() -> None:
    proto = model(
        helper.make_node("Strange", ["x"], ["a"], name="one", domain="com.acme"),
        helper.make_node("MyLayer", ["a"], ["b"], param=1),
        helper.make_node("Stranger", ["b"], ["y"], name="two", plugin_version="4"),
    )
    with pytest.raises(nx.UnsupportedError, match="the model has 2 nodes of 2 ops that can't be imported") as raised:
        run(proto)
    hint = str(raised.value.hint)
    assert "trt.register_plugin('Strange', YourClass)" in hint
    assert "trt.register_plugin('Stranger', YourClass, version='4')" in hint


def test_what_a_plugin_refuses_names_the_node() -> None:
    node = helper.make_node("MyLayer", ["x"], ["y"], name="node", parameter=1)
    with pytest.raises(nx.InvalidArgumentError, match="plugin MyLayer version 1: MyLayer does not take") as raised:
        run(model(node))
    assert raised.value.layer == "node (MyLayer)"
    graph = helper.make_graph([], "inner", [], [])
    node = helper.make_node("MyLayer", ["x"], ["y"], name="node", domain="com.acme", body=graph)
    with pytest.raises(nx.UnsupportedError, match="attribute 'body' of a plugin is a graph"):
        run(model(node))
    node = helper.make_node("MyLayer", ["x", ""], ["y"], name="node", param=1)
    with pytest.raises(nx.InvalidArgumentError, match="input 1 is missing"):
        run(model(node))


def test_the_command_line_imports_what_registers_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from neurenix.cli import main

    (tmp_path / "brings_scale.py").write_text(
        "import neurenix.hardware.tensorrt as trt\n"
        "from tests.plugins.classes import MyLayer\n"
        "trt.register_plugin('Scaled', MyLayer)\n"
    )
    onnx.save(model(helper.make_node("Scaled", ["x"], ["y"], param=2)), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    monkeypatch.chdir(tmp_path)
    given = ["run", "m.onnx", "--backend", "cpu", "--load-inputs", "x:x.npy"]
    assert main(given) != 0
    assert "trt.register_plugin('Scaled', YourClass)" in capsys.readouterr().err
    assert main([*given, "--plugins", "brings_scale"]) == 0
    assert "y: dtype float32, shape 1x4, min 2.0, max 2.0" in capsys.readouterr().out
