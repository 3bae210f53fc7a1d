"""A network that a parser read: looked at, changed, built; and what the parser says of those that it can't read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.tensorrt_api.made import Kept, constant, engine_of, profile, quick

onnx = pytest.importorskip("onnx")
reference_of = pytest.importorskip("onnx.reference").ReferenceEvaluator
helper = onnx.helper
RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
FLOAT = onnx.TensorProto.FLOAT


def model(nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], **weights: np.ndarray) -> bytes:
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def conv_relu(shape: list[Any]) -> bytes:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    return model(nodes, {"x": shape}, ["y"], w=W)


def parsed(data: bytes, logger: Any = None) -> tuple[trt.Builder, trt.INetworkDefinition]:
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(data), parser.get_error(0)
    return builder, network


def reference(data: bytes, x: np.ndarray) -> np.ndarray:
    return reference_of(onnx.load_from_string(data)).run(None, {"x": x})[0]


def execute(builder: trt.Builder, network: trt.INetworkDefinition, x: np.ndarray) -> Any:
    engine = builder.build_engine_with_config(network, quick(builder))
    assert engine is not None, trt.last_error()
    return engine.create_execution_context().execute(x)


X = RNG.standard_normal((1, 3, 6, 6)).astype(np.float32)


def test_the_layers_of_a_parsed_network_can_be_read() -> None:
    builder, network = parsed(conv_relu([1, 3, 6, 6]))
    assert (network.name, network.num_layers, network.num_inputs, network.num_outputs) == ("g", 2, 1, 1)
    assert network.builder is builder
    x, y = network.get_input(0), network.get_output(0)
    assert (x.name, x.shape, x.dtype, x.is_network_input) == ("x", (1, 3, 6, 6), trt.float32, True)
    assert (y.name, y.shape, y.is_network_output, y.is_network_input) == ("y", (1, 4, 6, 6), True, False)
    assert [layer.type for layer in network] == [trt.LayerType.CONVOLUTION, trt.LayerType.ACTIVATION]
    conv, relu = network[0], network[-1]
    assert (conv.name, conv.num_inputs, conv.num_outputs, conv.get_input(0)) == ("conv", 2, 1, x)
    assert conv.get_input(1).name == "w"
    assert conv.get_input(2) is None and network.get_layer(2) is None and network.get_input(1) is None
    assert relu.get_input(0) is conv.get_output(0)
    relu.__class__ = trt.IActivationLayer
    assert relu.type == trt.ActivationType.RELU
    assert network[1].type == trt.LayerType.ACTIVATION and network[1] == relu
    assert conv.pads == [1, 1, 1, 1]
    with pytest.raises(IndexError):
        network[2]


def test_a_parsed_network_computes_what_the_model_does() -> None:
    data = conv_relu([1, 3, 6, 6])
    np.testing.assert_allclose(execute(*parsed(data), X), reference(data, X), rtol=1e-4, atol=1e-5)


def test_the_shape_of_an_input_can_be_set_after_parsing() -> None:
    data = conv_relu(["batch", 3, "height", 6])
    builder, network = parsed(data)
    assert network.get_input(0).shape == (-1, 3, -1, 6)
    network.get_input(0).shape = (2, 3, 8, 6)
    assert network.get_output(0).shape == (2, 4, 8, 6)
    x = RNG.standard_normal((2, 3, 8, 6)).astype(np.float32)
    np.testing.assert_allclose(execute(builder, network, x), reference(data, x), rtol=1e-4, atol=1e-5)
    network.get_input(0).shape = (-1, 3, 8, 6)
    assert network.get_output(0).shape == (-1, 4, 8, 6)


def test_inputs_and_outputs_can_have_another_dtype_and_name() -> None:
    data = conv_relu([1, 3, 6, 6])
    builder, network = parsed(data)
    network.get_input(0).dtype, network.get_output(0).dtype = trt.int32, trt.float16
    network.get_input(0).name, network.get_output(0).name = "image", "scores"
    whole = np.rint(X * 3).astype(np.int32)
    engine = builder.build_engine(network, quick(builder))
    assert [engine.get_tensor_name(i) for i in range(2)] == ["image", "scores"]
    assert [engine.get_tensor_dtype(name) for name in ("image", "scores")] == [trt.int32, trt.float16]
    got = engine.create_execution_context().execute(whole)
    np.testing.assert_allclose(got, reference(data, whole.astype(np.float32)), rtol=1e-2, atol=1e-2)


def test_layers_are_added_behind_those_of_the_model() -> None:
    data = conv_relu([1, 3, 6, 6])
    builder, network = parsed(data)
    y = network.get_output(0)
    network.unmark_output(y)
    reduced = network.add_reduce(y, trt.ReduceOperation.AVG, 0b1100, False)
    network.mark_output(reduced.get_output(0))
    want = reference(data, X).mean((2, 3))
    np.testing.assert_allclose(execute(builder, network, X), want, rtol=1e-4, atol=1e-5)


def test_a_layer_of_the_model_can_read_something_else() -> None:
    data = conv_relu([1, 3, 6, 6])
    builder, network = parsed(data)
    scaled = network.add_scale(network.get_input(0), trt.ScaleMode.UNIFORM, scale=np.float32([2]))
    network[0].set_input(0, scaled.get_output(0))
    network[0].pads = [0, 0, 0, 0]
    assert network.get_output(0).shape == (1, 4, 4, 4)
    want = reference(data, 2 * X)[:, :, 1:-1, 1:-1]
    np.testing.assert_allclose(execute(builder, network, X), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(nx.InvalidArgumentError, match="reads itself"):
        network[0].set_input(0, network[1].get_output(0))


def test_inner_tensors_become_outputs() -> None:
    builder, network = parsed(conv_relu([1, 3, 6, 6]))
    network.mark_output(network[0].get_output(0))
    engine = builder.build_engine(network, quick(builder))
    found = engine.create_execution_context().execute({"x": X})
    assert list(found) == ["y", "c"]
    np.testing.assert_allclose(found["y"], np.maximum(found["c"], 0), rtol=1e-5, atol=1e-6)


def test_what_nodes_hand_on_has_its_own_name() -> None:
    """Identity, Dropout and a Sum of one tensor give tensors of their own, as in TensorRT; kernels there are none."""
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], "id1"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Identity", ["b"], ["c"], "id2"),
        helper.make_node("Dropout", ["c"], ["d", "mask"], "drop"),
        helper.make_node("Sum", ["d"], ["e"], "sum"),
        helper.make_node("Identity", ["w"], ["v"], "shared"),
        helper.make_node("Conv", ["e", "v"], ["f"], "conv"),
        helper.make_node("Identity", ["f"], ["y"], "id3"),
    ]
    data = model(nodes, {"x": [1, 3, 6, 6]}, ["y"], w=W)
    builder, network = parsed(data)
    assert {"a", "b", "c", "d", "e", "f", "y"} <= {layer.get_output(0).name for layer in network}
    plain = parsed(model([nodes[1], helper.make_node("Conv", ["b", "w"], ["y"])], {"a": [1, 3, 6, 6]}, ["y"], w=W))
    counts = [each[0].build_engine(each[1], quick(each[0])).num_layers for each in ((builder, network), plain)]
    assert counts[0] == counts[1]
    for mark in ("a", "c", "d", "e"):
        builder, network = parsed(data)
        before = network.num_layers
        marked = next(layer.get_output(0) for layer in network if layer.get_output(0).name == mark)
        network.mark_output(marked)
        assert network.num_layers == before
        found = builder.build_engine(network, quick(builder)).create_execution_context().execute({"x": X})
        np.testing.assert_array_equal(found[mark], X if mark == "a" else np.maximum(X, 0))
        np.testing.assert_allclose(found["y"], reference(data, X), rtol=1e-4, atol=1e-5)


def test_sizes_are_known_behind_identity() -> None:
    """Shapes that a call tells, floats of them, and constants, each behind Identity."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Identity", ["s"], ["t"]),
        helper.make_node("Gather", ["t", "zero"], ["n"]),
        helper.make_node("Identity", ["minus"], ["m"]),
        helper.make_node("Concat", ["n", "m"], ["target"], axis=0),
        helper.make_node("Identity", ["target"], ["u"]),
        helper.make_node("Reshape", ["x", "u"], ["flat"]),
        helper.make_node("Squeeze", ["n"], ["count"]),
        helper.make_node("Cast", ["count"], ["number"], to=FLOAT),
        helper.make_node("Identity", ["number"], ["end"]),
        helper.make_node("Range", ["start", "end", "step"], ["steps"]),
        helper.make_node("Unsqueeze", ["steps", "one"], ["column"]),
        helper.make_node("Add", ["flat", "column"], ["y"]),
    ]
    weights = {"zero": np.int64([0]), "minus": np.int64([-1]), "one": np.int64([1])}
    floats = {"start": np.float32(0), "step": np.float32(1)}
    data = model(nodes, {"x": ["n", 3, 2]}, ["y"], **weights, **floats)
    builder, network = parsed(data)
    config = quick(builder)
    profile(builder, config, x=((1, 3, 2), (4, 3, 2), (8, 3, 2)))
    x = RNG.standard_normal((5, 3, 2)).astype(np.float32)
    found = builder.build_engine(network, config).create_execution_context().execute(x)
    np.testing.assert_allclose(found, reference(data, x), rtol=1e-6)


def test_a_tensor_is_removed_when_nobody_reads_it() -> None:
    network = trt.Builder().create_network()
    x, spare = (network.add_input(name, trt.float32, (2,)) for name in ("x", "spare"))
    network.mark_output(network.add_identity(x))
    with pytest.raises(nx.InvalidArgumentError, match="a layer reads the tensor"):
        network.remove_tensor(x)
    network.remove_tensor(spare)
    assert [tensor.name for tensor in network.to_network().inputs] == ["x"]


def test_a_result_with_two_names_and_one_that_is_an_input() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])]
    builder, network = parsed(model(nodes, {"x": [2]}, ["y", "z", "x"]))
    engine = builder.build_engine(network, quick(builder))
    names = [name for name, _, _ in engine._engine.outputs]
    found = engine.create_execution_context().execute({"x": np.float32([-1, 2])})
    assert names == ["y", "z", "x"]
    for name, want in zip(names, ([0, 2], [0, 2], [-1, 2]), strict=True):
        np.testing.assert_array_equal(found[name], np.float32(want))


def test_control_flow_is_built_but_not_changed_before() -> None:
    branch = [
        helper.make_graph(
            [helper.make_node(op, ["x"], ["r"])], op, [], [helper.make_tensor_value_info("r", FLOAT, None)]
        )
        for op in ("Abs", "Neg")
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["b"], to=onnx.TensorProto.BOOL),
        helper.make_node("If", ["b"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    builder, network = parsed(model(nodes, {"x": [2]}, ["y"]))
    assert network[2].type == trt.LayerType.PLUGIN_V3
    np.testing.assert_array_equal(execute(builder, network, np.float32([-3, 1])), [3, 1])
    network.get_input(0).dtype = trt.float16
    assert builder.build_serialized_network(network, quick(builder)) is None
    assert "can't be changed before it" in str(trt.last_error())


def test_what_the_parser_can_not_read_is_an_error_with_its_node() -> None:
    logger = Kept()
    network = trt.Builder(logger).create_network()
    parser = trt.OnnxParser(network, logger)
    bad = model([helper.make_node("MatMul", ["x", "x"], ["y"], "product")], {"x": [2, 3]}, ["y"])
    assert parser.parse(bad) is False
    assert parser.num_errors == 1
    error = parser.get_error(0)
    assert (error.code(), error.node(), error.node_name(), error.node_operator()) == (
        trt.ErrorCode.INVALID_NODE, 0, "product", "MatMul"
    )  # fmt: skip
    assert error.desc() == str(error) == str(trt.last_error()) == logger.errors[0]
    assert error.file().endswith(".py") and error.line() > 0 and error.func()
    parser.clear_errors()
    assert parser.num_errors == 0
    with pytest.raises(nx.InvalidArgumentError, match="no error of this number"):
        parser.get_error(0)
    unknown = model([helper.make_node("Frobnicate", ["x"], ["y"], "f", domain="far")], {"x": [2]}, ["y"])
    assert not parser.parse(unknown) and parser.get_error(0).code() == trt.ErrorCode.UNSUPPORTED_NODE
    assert not parser.parse(b"no model") and parser.get_error(1).code() == trt.ErrorCode.MODEL_DESERIALIZE_FAILED
    assert not parser.parse_from_file("nowhere.onnx")
    assert network.num_layers == network.num_inputs == 0


def test_a_second_model_wants_a_network_of_its_own() -> None:
    _, network = parsed(conv_relu([1, 3, 6, 6]))
    parser = trt.OnnxParser(network, trt.Logger())
    assert not parser.parse(conv_relu([1, 3, 6, 6]))
    assert "has layers or inputs already" in parser.get_error(0).desc()


def test_a_parser_says_what_it_supports() -> None:
    parser = trt.OnnxParser(trt.Builder().create_network(), None)
    assert parser.supports_operator("Conv") and not parser.supports_operator("Frobnicate")
    assert parser.supports_model(conv_relu([1, 3, 6, 6])) == (True, [([0, 1], True)])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Frobnicate", ["a"], ["b"], domain="far"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    assert not parser.supports_model_v2(model(nodes, {"x": [2]}, ["y"]))
    assert parser.num_subgraphs == 3
    assert [parser.is_subgraph_supported(i) for i in range(3)] == [True, False, True]
    assert parser.get_subgraph_nodes(2) == [2]


def test_flags_of_a_parser_and_of_a_network_are_kept() -> None:
    network = trt.Builder().create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert network.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    assert not network.get_flag(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    with pytest.raises(nx.InvalidArgumentError, match="no such flag"):
        trt.Builder().create_network(1 << 9)
    parser = trt.OnnxParser(network)
    assert parser.get_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
    parser.clear_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
    assert parser.flags == 0


def test_weights_beside_the_model_are_found_by_its_path(tmp_path: Path) -> None:
    data = conv_relu([1, 3, 6, 6])
    onnx.save(
        onnx.load_from_string(data), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    raw = (tmp_path / "m.onnx").read_bytes()
    for read in (
        lambda parser: parser.parse(raw, path=str(tmp_path / "m.onnx")),
        lambda parser: parser.parse_from_file(str(tmp_path / "m.onnx")),
        lambda parser: parser.load_model_proto(raw, tmp_path / "m.onnx") and parser.parse_model_proto(),
    ):
        builder = trt.Builder()
        network = builder.create_network()
        assert read(trt.OnnxParser(network))
        np.testing.assert_allclose(execute(builder, network, X), reference(data, X), rtol=1e-4, atol=1e-5)
    assert not trt.OnnxParser(trt.Builder().create_network(), Kept()).parse(raw)


def test_precision_of_layers_is_kept_and_told() -> None:
    builder, network = parsed(conv_relu([1, 3, 6, 6]))
    assert not network[0].precision_is_set
    network[0].precision = trt.float16
    network[0].metadata = "mine"
    assert (network[0].precision, network[0].metadata) == (trt.float16, "mine")
    config = quick(builder)
    assert builder.is_network_supported(network, config)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    assert not builder.is_network_supported(network, config)
    assert "layer: conv" in str(trt.last_error())
    network[0].reset_precision()
    assert builder.is_network_supported(network, config)


def test_names_of_weights_and_dimensions() -> None:
    kernel = np.ones((4, 3, 1, 1), np.float32)

    def build(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3, -1, -1))
        x.set_dimension_name(2, "side")
        x.set_dimension_name(3, "side")
        conv = network.add_convolution_nd(x, 4, (1, 1), kernel)
        assert network.set_weights_name(kernel, "stem.kernel")
        with pytest.raises(nx.InvalidArgumentError, match="no layer has these weights"):
            network.set_weights_name(kernel.copy(), "other")
        assert conv.get_output(0).get_dimension_name(2) == "side"
        return network.add_elementwise(conv, constant(network, np.ones((1, 4, 1, 1))), trt.ElementWiseOperation.SUM)

    engine = engine_of(build, lambda b, config: config.set_flag(trt.BuilderFlag.REFIT))
    assert "stem.kernel" in trt.Refitter(engine).get_all_weights()
