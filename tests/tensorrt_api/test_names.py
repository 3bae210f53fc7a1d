"""Names of TensorRT's: those that came with 10.16, those from before 10, and those that are not there, with reasons."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.hardware.tensorrt.absent import ABSENT, OF_OBJECTS
from tests.tensorrt_api.made import Kept, engine_of, quick

onnx = pytest.importorskip("onnx")
reference_of = pytest.importorskip("onnx.reference").ReferenceEvaluator
RNG = np.random.default_rng(0)


def relu(network: trt.INetworkDefinition) -> Any:
    return network.add_activation(network.add_input("x", trt.float32, (2, 3)), trt.ActivationType.RELU).get_output(0)


def test_what_is_not_there_says_why() -> None:
    for name, reason in ABSENT.items():
        assert name not in trt.__all__
        with pytest.raises(AttributeError) as caught:
            getattr(trt, name)
        assert str(caught.value) == f"trt.{name} is not there: {reason}"
    engine = engine_of(relu, lambda builder, config: config.set_flag(trt.BuilderFlag.REFIT))
    builder = trt.Builder()
    config = builder.create_builder_config()
    made = {
        "ITimingCache": config.create_timing_cache(b""),
        "ICudaEngine": engine,
        "IExecutionContext": engine.create_execution_context(),
        "IBuilderConfig": config,
        "Builder": builder,
        "INetworkDefinition": builder.create_network(),
        "Refitter": trt.Refitter(engine),
    }
    assert set(made) == set(OF_OBJECTS)
    for kind, reasons in OF_OBJECTS.items():
        for name, reason in reasons.items():
            assert not hasattr(made[kind], name), (kind, name)
            with pytest.raises(AttributeError) as caught:
                getattr(made[kind], name)
            assert str(caught.value).startswith(f"{kind} has no attribute {name!r}: {reason}")
            # What it says to call or to ask is there.
            words = reason.replace(":", " ").split()
            if words[0] in ("call", "ask"):
                assert hasattr(made[kind], words[1])
    with pytest.raises(AttributeError, match=r"ICudaEngine has no attribute 'nothing'$"):
        getattr(engine, "nothing")  # noqa: B009


def test_a_height_and_a_width() -> None:
    size = trt.DimsHW(3, 5)
    assert (size.h, size.w) == (3, 5) and size == (3, 5) == trt.DimsHW([3, 5])
    assert isinstance(size, trt.Dims2) and isinstance(size, trt.Dims)
    with pytest.raises(ValueError, match="DimsHW has 2 dimensions"):
        trt.DimsHW(1, 2, 3)


def test_interfaces_have_a_language_and_a_version() -> None:
    class Plugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
        pass

    for made in (Plugin(), trt.IPluginCreator(), trt.IPluginCreatorV3One(), trt.IPluginResource()):
        assert isinstance(made, trt.IVersionedInterface) and made.api_language is trt.APILanguage.PYTHON
        assert made.interface_info.kind and made.interface_info[1:] == (1, 0)
    assert Plugin().interface_info.kind == "PLUGIN"
    assert [int(word) for word in trt.APILanguage] == [0, 1] and int(trt.SeekPosition.END) == 2


def test_the_registry_of_a_builder() -> None:
    assert trt.get_builder_plugin_registry(trt.EngineCapability.STANDARD) is trt.get_plugin_registry()
    with pytest.raises(nx.UnsupportedError, match="one runtime"):
        trt.get_builder_plugin_registry(trt.EngineCapability.SAFETY)


def test_a_resource_is_shared_and_released() -> None:
    class Table(trt.IPluginResource):
        released = False

        def clone(self) -> Table:
            return Table()

        def release(self) -> None:
            self.released = True

    registry, given = trt.get_plugin_registry(), Table()
    kept = registry.acquire_plugin_resource("table", given)
    assert kept is not given and registry.acquire_plugin_resource("table", Table()) is kept
    assert registry.release_plugin_resource("table") == 0 and not kept.released
    assert registry.release_plugin_resource("table") == 0 and kept.released
    assert registry.release_plugin_resource("table") == -1


def test_a_writer_takes_the_engine() -> None:
    class Writer(trt.IStreamWriter):
        def __init__(self, most: int) -> None:
            super().__init__()
            self.most, self.data = most, b""

        def write(self, data: bytes) -> int:
            assert isinstance(data, bytes)
            self.data = data[: self.most]
            return len(self.data)

    logger = Kept()
    builder = trt.Builder(logger)
    network = builder.create_network()
    network.mark_output(relu(network))
    writer = Writer(1 << 30)
    assert builder.build_serialized_network_to_stream(network, quick(builder), writer)
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    engine = trt.Runtime().deserialize_cuda_engine(writer.data)
    np.testing.assert_array_equal(engine.create_execution_context().execute(x), np.maximum(x, 0))
    assert not builder.build_serialized_network_to_stream(network, quick(builder), Writer(10))
    assert "the writer did not take the engine" in logger.errors[-1] and "got: 10 bytes" in logger.errors[-1]
    with pytest.raises(NotImplementedError, match="write"):
        builder.build_serialized_network_to_stream(network, quick(builder), trt.IStreamWriter())


def test_a_context_tells_how_it_was_made() -> None:
    engine = engine_of(relu)
    strategy = trt.ExecutionContextAllocationStrategy
    config = engine.create_runtime_config()
    assert engine.create_execution_context(runtime_config=config).get_runtime_config() is config
    for asked in (strategy.STATIC, strategy.USER_MANAGED):
        found = engine.create_execution_context(asked).get_runtime_config()
        assert found.get_execution_context_allocation_strategy() is asked
    found = engine.create_execution_context().get_runtime_config()
    assert found.get_execution_context_allocation_strategy() is strategy.STATIC


def affine(scale: np.ndarray, shift: np.ndarray, outside: bool) -> onnx.ModelProto:
    """x * scale + shift, in float32; with `outside`, the bytes of the weights lie in a file that is not there."""
    helper = onnx.helper
    nodes = [
        helper.make_node("Cast", ["scale"], ["wide"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "wide"], ["p"]),
        helper.make_node("Add", ["p", "shift"], ["y"]),
    ]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in (("scale", scale), ("shift", shift))]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 4]) for name in "xy"]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ports[:1], ports[1:], weights),
        opset_imports=[helper.make_opsetid("", 20)], ir_version=10,
    )  # fmt: skip
    for weight in model.graph.initializer if outside else ():
        onnx.external_data_helper.set_external_data(weight, "nowhere.bin")
        weight.ClearField("raw_data")
    return model


SCALE = np.arange(1, 9).reshape(2, 4).astype(ml_dtypes.bfloat16)
SHIFT = RNG.standard_normal((2, 4)).astype(np.float32)
X = RNG.standard_normal((2, 4)).astype(np.float32)


def test_weights_come_from_memory() -> None:
    logger = Kept()
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    assert not parser.load_initializer("shift", SHIFT.ctypes.data, SHIFT.nbytes)
    assert "no model was loaded" in logger.errors[-1]
    assert not parser.load_model_proto(b"no model") and "no ONNX model" in logger.errors[-1]
    assert parser.load_model_proto(affine(SCALE, SHIFT, outside=True).SerializeToString())
    for name, address, size, why in (
        ("shfit", SHIFT.ctypes.data, SHIFT.nbytes, "nearest name is 'shift'"),
        ("shift", SHIFT.ctypes.data, SHIFT.size, "expected: 32 bytes"),
        ("shift", 8, SHIFT.nbytes, "the processor can't read"),
    ):
        assert not parser.load_initializer(name, address, size)
        assert why in logger.errors[-1] and why in parser.get_error(parser.num_errors - 1).desc()
    assert parser.load_initializer("shift", SHIFT.ctypes.data, SHIFT.nbytes)
    # The other one still lies in the file.
    assert not parser.parse_model_proto() and "nowhere.bin" in logger.errors[-1]
    assert parser.load_initializer("scale", SCALE.ctypes.data, SCALE.nbytes)
    assert parser.parse_model_proto(), logger.errors[-1]
    found = builder.build_engine(network, quick(builder)).create_execution_context().execute(X)
    (want,) = reference_of(affine(SCALE, SHIFT, outside=False)).run(None, {"x": X})
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)


def test_a_refit_takes_weights_from_memory() -> None:
    builder = trt.Builder()
    network = builder.create_network()
    assert trt.OnnxParser(network).parse(affine(SCALE, SHIFT, outside=False).SerializeToString())
    config = quick(builder)
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine(network, config)
    refitter = trt.Refitter(engine)
    parser = trt.OnnxParserRefitter(refitter)
    assert not parser.refit_model_proto() and parser.num_errors == 1
    other = -2 * SHIFT
    assert parser.load_model_proto(affine(SCALE, SHIFT, outside=True).SerializeToString())
    assert parser.load_initializer("scale", SCALE.ctypes.data, SCALE.nbytes)
    assert parser.load_initializer("shift", other.ctypes.data, other.nbytes)
    assert parser.refit_model_proto() and refitter.refit_cuda_engine(), trt.last_error()
    (want,) = reference_of(affine(SCALE, other, outside=False)).run(None, {"x": X})
    np.testing.assert_allclose(engine.create_execution_context().execute(X), want, rtol=1e-6, atol=1e-6)
