"""Engines and contexts by addresses: shapes, profiles, allocators, and every wrong call that can be known as one."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.tensorrt_api.made import Grown, Kept, engine_of, profile

RNG = np.random.default_rng(0)
RANGES = ((1, 3), (2, 3), (4, 3)), ((8, 3), (8, 3), (16, 3))


def doubled(network: trt.INetworkDefinition) -> Any:
    x = network.add_input("x", trt.float32, (-1, 3))
    y = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
    y.name = "y"
    return y


def two_profiles(builder: trt.Builder, config: trt.IBuilderConfig) -> None:
    for shapes in RANGES:
        profile(builder, config, x=shapes)


@pytest.fixture
def logger() -> Kept:
    return Kept()


@pytest.fixture
def engine(logger: Kept) -> trt.ICudaEngine:
    return engine_of(doubled, two_profiles, logger)


def test_an_engine_tells_of_its_inputs_and_outputs(engine: trt.ICudaEngine) -> None:
    assert (engine.num_io_tensors, list(engine)) == (2, ["x", "y"])
    assert [engine.get_tensor_mode(n) for n in ("x", "y", "z")] == [
        trt.TensorIOMode.INPUT, trt.TensorIOMode.OUTPUT, trt.TensorIOMode.NONE
    ]  # fmt: skip
    assert engine.get_tensor_shape("x") == (-1, 3) and engine.get_tensor_dtype("y") == trt.float32
    assert engine.get_tensor_format("x") == engine.get_tensor_format("x", 1) == trt.TensorFormat.LINEAR
    assert engine.get_tensor_location("x") == trt.TensorLocation.HOST
    assert (engine.get_tensor_bytes_per_component("x"), engine.get_tensor_vectorized_dim("y", 0)) == (-1, -1)
    assert engine.num_optimization_profiles == 2
    assert engine.get_tensor_profile_shape("x", 1) == [(8, 3), (8, 3), (16, 3)]
    assert engine.get_tensor_profile_shape("y", 1) == []
    assert (engine.name, engine.refittable, engine.num_layers) == ("network", False, 1)
    assert engine.device_memory_size_v2 >= engine.get_device_memory_size_for_profile_v2(0) >= 0
    assert engine.get_binding_size("x") == engine.get_binding_size(1) == 4 * 3 * 4
    with pytest.raises(nx.InvalidArgumentError, match="no profile of this number"):
        engine.get_tensor_profile_shape("x", 2)
    with pytest.raises(nx.InvalidArgumentError, match="the nearest name is 'x'"):
        engine.get_tensor_shape("z")
    with pytest.raises(nx.InvalidArgumentError, match="no input or output of this number"):
        engine.get_tensor_name(2)


def test_a_call_on_addresses(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    assert context.engine is engine and not context.all_binding_shapes_specified
    assert context.infer_shapes() == ["x"]
    assert context.get_tensor_shape("y") == (-1, 3)
    assert context.set_input_shape("x", (3, 3)) and context.all_binding_shapes_specified
    assert context.infer_shapes() == [] and context.get_tensor_shape("y") == (3, 3)
    assert context.get_tensor_strides("y") == (3, 1)
    assert context.get_max_output_size("y") == 36
    x = RNG.standard_normal((3, 3)).astype(np.float32)
    y = np.zeros_like(x)
    assert context.set_tensor_address("x", x.ctypes.data)
    assert context.set_tensor_address("y", ctypes.c_void_p(y.ctypes.data))
    assert context.get_tensor_address("x") == x.ctypes.data
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(y, 2 * x)
    y[:] = 0
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, 2 * x)
    y[:] = 0
    assert context.execute(1, [x.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, 2 * x)


def two_of_each(network: trt.INetworkDefinition) -> Any:
    a, b = (network.add_input(name, trt.float32, (8,)) for name in "ab")
    found = []
    for name, operation in (("sum", trt.ElementWiseOperation.SUM), ("product", trt.ElementWiseOperation.PROD)):
        found.append(network.add_elementwise(a, b, operation).get_output(0))
        found[-1].name = name
    return found


def test_an_output_that_shares_memory_is_refused_by_name(logger: Kept) -> None:
    context = engine_of(two_of_each, logger=logger).create_execution_context()
    memory = np.arange(64, dtype=np.float32)
    at = [memory[16 * i :].ctypes.data for i in range(4)]
    assert context.execute_v2(at)
    np.testing.assert_array_equal(memory[32:40], memory[:8] + memory[16:24])
    # Two inputs may be one, and neighbours touch.
    assert context.execute_v2([at[0], at[0], at[0] + 32, at[0] + 64])
    before = memory.copy()
    for bindings, names in (
        ([at[0], at[1], at[0], at[3]], "a, sum"),
        ([at[0], at[1], at[2], at[1] + 28], "b, product"),
        ([at[0], at[1] + 4, at[2], at[1]], "product, b"),
        ([at[0], at[1], at[2], at[2] + 16], "sum, product"),
    ):
        assert not context.execute_v2(bindings)
        assert "the memory of an output overlaps that of another tensor" in logger.errors[-1]
        assert set(f"{trt.last_error().tensor}".split(", ")) == set(names.split(", "))
    np.testing.assert_array_equal(memory, before)
    for name, address in zip(("a", "b", "sum", "product"), at, strict=True):
        assert context.set_tensor_address(name, address)
    assert context.execute_async_v3(0)
    context.set_tensor_address("sum", at[1])
    assert not context.execute_async_v3(0)


def test_torch_brings_pointers_too(engine: trt.ICudaEngine) -> None:
    torch = pytest.importorskip("torch")
    context = engine.create_execution_context()
    x, y = torch.rand(2, 3), torch.zeros(2, 3)
    context.set_input_shape("x", tuple(x.shape))
    context.set_tensor_address("x", x.data_ptr())
    context.set_tensor_address("y", y.data_ptr())
    assert context.execute_async_v3(stream_handle=0)
    assert torch.equal(y, 2 * x)


def test_shapes_must_lie_in_the_active_profile(engine: trt.ICudaEngine, logger: Kept) -> None:
    context = engine.create_execution_context()
    assert context.set_input_shape("x", [4, 3])
    assert context.set_input_shape("x", (9, 3)) is False
    assert context.get_tensor_shape("x") == (4, 3)
    assert (
        logger.errors
        == [str(trt.last_error())]
        == [
            "dimension 0 of the input lies outside of profile 0\n  tensor: x\n  expected: 1 to 4\n  got: [9, 3]\n"
            "  hint: choose another profile with set_optimization_profile_async, or build with a wider one"
        ]
    )
    assert context.set_optimization_profile_async(1, 0) and context.active_optimization_profile == 1
    assert not context.all_binding_shapes_specified
    assert context.set_input_shape("x", (9, 3)) and not context.set_input_shape("x", (4, 3))
    assert not context.set_optimization_profile_async(2, 0)
    for shape in ((9,), (9, -1), (9, 4), ("a", 3)):
        assert not context.set_input_shape("x", shape)
    assert not context.set_input_shape("y", (9, 3)) and "is no input" in logger.errors[-1]
    assert not context.set_input_shape("z", (9, 3)) and "no tensor 'z'" in logger.errors[-1]


def test_a_call_that_lacks_something_says_what(engine: trt.ICudaEngine, logger: Kept) -> None:
    context = engine.create_execution_context()
    assert not context.execute_async_v3(0)
    assert "the shapes of inputs are not set\n  tensor: x" in logger.errors[-1]
    context.set_input_shape("x", (1, 3))
    assert not context.execute_async_v3(0)
    assert "the addresses of tensors are not set\n  tensor: x, y" in logger.errors[-1]
    for nothing in (0, None, -8, ctypes.c_void_p()):
        assert not context.set_tensor_address("x", nothing)
        assert "no address\n  tensor: x" in logger.errors[-1]
    assert not context.set_tensor_address("z", 8)
    with pytest.raises(nx.InvalidArgumentError, match=r"array\.ctypes\.data"):
        context.set_tensor_address("x", np.zeros(3, np.float32))
    x = np.zeros((1, 3), np.float32)
    assert context.set_tensor_address("x", x.ctypes.data)
    assert not context.execute_async_v3(0)
    assert "not set\n  tensor: y" in logger.errors[-1]
    assert not context.execute_v2([x.ctypes.data]) and "expected: x, y" in logger.errors[-1]
    assert not context.execute_v2([x.ctypes.data, 0]) and "no address\n  tensor: y" in logger.errors[-1]
    assert all(severity == trt.Logger.ERROR for severity, _ in logger.messages)


def test_an_allocator_brings_the_memory_of_an_output(engine: trt.ICudaEngine, logger: Kept) -> None:
    context = engine.create_execution_context()
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    grown = Grown()
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    assert context.set_output_allocator("y", grown) and context.get_output_allocator("y") is grown
    assert context.execute_async_v3(0)
    assert grown.shapes == {"y": (2, 3)}
    np.testing.assert_array_equal(grown.array("y", np.float32), 2 * x)
    assert not context.set_output_allocator("x", grown)
    assert not context.set_output_allocator("y", object())

    class Poor(Grown):
        def reallocate_output_async(self, *args: Any) -> int:
            return 0

    context.set_output_allocator("y", Poor())
    assert not context.execute_async_v3(0)
    assert "gave no memory for an output\n  tensor: y" in logger.errors[-1]


def places(network: trt.INetworkDefinition) -> Any:
    x = network.add_input("x", trt.float32, (-1,))
    layer = network.add_non_zero(x)
    layer.get_output(0).name, layer.get_output(1).name = "places", "count"
    return [layer.get_output(0), layer.get_output(1)]


def test_outputs_whose_size_depends_on_data(logger: Kept) -> None:
    engine = engine_of(places, lambda b, c: profile(b, c, x=((1,), (8,), (64,))), logger)
    context = engine.create_execution_context()
    grown, count = Grown(), np.zeros((), np.int32)
    assert engine.get_tensor_location("x") == trt.TensorLocation.HOST
    for x in (np.float32([0, 2, 0, 3]), np.zeros(5, np.float32), np.ones(64, np.float32)):
        assert context.set_input_shape("x", x.shape)
        assert context.get_tensor_shape("places") == (1, -1) and context.get_max_output_size("places") == -1
        context.set_tensor_address("x", x.ctypes.data)
        context.set_tensor_address("count", count.ctypes.data)
        context.set_output_allocator("places", grown)
        assert context.execute_async_v3(0), trt.last_error()
        np.testing.assert_array_equal(grown.array("places", np.int32), np.stack(np.nonzero(x)))
        assert count == np.count_nonzero(x)
    context.set_output_allocator("places", None)
    context.set_tensor_address("places", count.ctypes.data)
    assert not context.execute_async_v3(0)
    assert "set_output_allocator" in logger.errors[-1] and "tensor: places" in logger.errors[-1]
    with pytest.raises(nx.UnsupportedError, match="depends on data"):
        engine.get_binding_size("places")


def test_inputs_whose_shapes_do_not_go_together(logger: Kept) -> None:
    def build(network: trt.INetworkDefinition) -> Any:
        x, y = (network.add_input(name, trt.float32, (f"{name}_size", 2)) for name in ("x", "y"))
        return network.add_elementwise(x, y, trt.ElementWiseOperation.SUM)

    ranges = ((1, 2), (4, 2), (8, 2))
    engine = engine_of(build, lambda b, c: profile(b, c, x=ranges, y=ranges), logger)
    context = engine.create_execution_context()
    context.set_input_shape("x", (3, 2)), context.set_input_shape("y", (4, 2))
    with pytest.raises(nx.ShapeError):
        context.infer_shapes()
    assert context.set_input_shape("y", (3, 2)) and context.infer_shapes() == []


def test_what_is_no_engine_is_not_opened(logger: Kept, engine: trt.ICudaEngine) -> None:
    data = engine.serialize()
    runtime = trt.Runtime(logger)
    for damaged in (b"", b"no engine", bytes(data)[:-20], bytes(data)[:40] + b"\0" + bytes(data)[41:]):
        before = len(logger.errors)
        assert runtime.deserialize_cuda_engine(damaged) is None
        assert isinstance(trt.last_error(), nx.FormatError)
        assert logger.errors[before:] == [str(trt.last_error())]
    assert runtime.deserialize_cuda_engine(12.5) is None and "opened from bytes" in logger.errors[-1]
    with pytest.raises(nx.UnsupportedError, match="no runtime to load"):
        runtime.load_runtime("libnvinfer_lean.so")


def test_an_engine_is_opened_from_all_that_has_bytes(engine: trt.ICudaEngine) -> None:
    data = engine.serialize()
    assert isinstance(data, bytes) and data.nbytes == len(memoryview(data)) == len(data)

    class Reader(trt.IStreamReader):
        def __init__(self) -> None:
            super().__init__()
            self.at = 0

        def read(self, size: int) -> bytes:
            piece = bytes(data)[self.at : self.at + min(size, 100)]
            self.at += len(piece)
            return piece

    for given in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8), Reader()):
        opened = trt.Runtime(trt.Logger()).deserialize_cuda_engine(given)
        assert opened is not None and list(opened) == ["x", "y"]
        x = np.ones((2, 3), np.float32)
        np.testing.assert_array_equal(opened.create_execution_context().execute(x), 2 * x)


def test_a_profiler_is_told_the_time_of_each_kernel(engine: trt.ICudaEngine, logger: Kept) -> None:
    class Times(trt.IProfiler):
        def __init__(self) -> None:
            super().__init__()
            self.times: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.times.append((layer_name, ms))

    context = engine.create_execution_context()
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    context.set_input_shape("x", x.shape)
    assert not context.report_to_profiler() and "nothing to report" in logger.errors[-1]
    context.profiler = times = Times()
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, 2 * x)
    assert [name for name, _ in times.times] == ["ElementWise_0"] and times.times[0][1] > 0
    context.enqueue_emits_profile = False
    assert context.execute_async_v3(0) and len(times.times) == 1
    assert context.report_to_profiler() and len(times.times) == 2
    with pytest.raises(nx.InvalidArgumentError, match=r"derived from trt\.IProfiler"):
        context.profiler = object()


def test_an_inspector_tells_what_runs(engine: trt.ICudaEngine) -> None:
    import json

    inspector = engine.create_engine_inspector()
    told = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    assert [layer["Name"] for layer in told["Layers"]] == ["ElementWise_0"]
    assert told["Layers"][0]["Provider"] == "cpu" and told["Bindings"] == ["x", "y"]
    assert told["I/O Tensors"][0] == {
        "Name": "x", "IOMode": "INPUT", "DataType": "FLOAT", "Dimensions": [-1, 3], "Location": "HOST",
        "IsShapeInferenceIO": False,
        "ProfileInfo": [
            {"Profile": 0, "Min": [1, 3], "Opt": [2, 3], "Max": [4, 3]},
            {"Profile": 1, "Min": [8, 3], "Opt": [8, 3], "Max": [16, 3]},
        ],
    }  # fmt: skip
    line = inspector.get_layer_information(0, trt.LayerInformationFormat.ONELINE)
    assert line.startswith("ElementWise_0 (") and "\n" not in line
    assert inspector.get_engine_information(trt.LayerInformationFormat.ONELINE) == line
    with pytest.raises(nx.InvalidArgumentError, match="no layer of this number"):
        inspector.get_layer_information(1, trt.LayerInformationFormat.JSON)


def test_a_recorder_is_told_errors(engine: trt.ICudaEngine) -> None:
    class Recorder(trt.IErrorRecorder):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[tuple[Any, str]] = []

        def report_error(self, val: Any, desc: str) -> bool:
            self.told.append((val, desc))
            return True

    context = engine.create_execution_context()
    context.error_recorder = recorder = Recorder()
    assert not context.set_input_shape("x", (99, 3))
    assert recorder.told == [(trt.ErrorCodeTRT.INVALID_ARGUMENT, str(trt.last_error()))]
    trt.clear_last_error()
    assert trt.last_error() is None


def test_a_logger_needs_a_log() -> None:
    for made in (trt.Builder, trt.Runtime):
        with pytest.raises(nx.InvalidArgumentError, match="this is no logger"):
            made("logger")
    with pytest.raises(NotImplementedError, match=r"must have log\(severity, msg\)"):
        trt.ILogger().log(trt.Logger.ERROR, "text")


def test_contexts_of_one_engine_have_shapes_of_their_own(engine: trt.ICudaEngine) -> None:
    first, second = (engine.create_execution_context() for _ in range(2))
    assert first.set_input_shape("x", (2, 3)) and second.set_optimization_profile_async(1, 0)
    assert second.set_input_shape("x", (16, 3))
    assert first.get_tensor_shape("y") == (2, 3) and second.get_tensor_shape("y") == (16, 3)
    assert second.update_device_memory_size_for_shapes() >= 0
    with pytest.raises(nx.InvalidArgumentError, match="a strategy or a runtime_config"):
        engine.create_execution_context("static")
    config = engine.create_runtime_config()
    config.set_execution_context_allocation_strategy(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
    assert engine.create_execution_context(config).engine is engine


def test_an_input_without_elements_needs_no_address(logger: Kept) -> None:
    def build(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (-1, 2))
        return network.add_reduce(x, trt.ReduceOperation.SUM, 1, False)

    engine = engine_of(build, lambda b, c: profile(b, c, x=((0, 2), (2, 2), (4, 2))), logger)
    context = engine.create_execution_context()
    y = np.ones(2, np.float32)
    assert context.set_input_shape("x", (0, 2))
    context.set_tensor_address(engine[1], y.ctypes.data)
    assert context.execute_async_v3(0), trt.last_error()
    np.testing.assert_array_equal(y, [0, 0])


def test_words_are_numbers_and_texts_as_nvidias() -> None:
    assert str(trt.float32) == "DataType.FLOAT" and int(trt.float16) == 1 and trt.float32.itemsize == 4
    assert 1 << int(trt.BuilderFlag.TF32) == 64 and str(trt.LayerType.CONVOLUTION) == "LayerType.CONVOLUTION"
    assert trt.Logger.ERROR < trt.Logger.WARNING and trt.Logger.Severity.INFO is trt.Logger.INFO
    assert trt.nptype(trt.float32) is np.float32 and np.dtype(trt.nptype(trt.bfloat16)).itemsize == 2
    assert trt.volume((2, 3, 4)) == trt.volume(trt.Dims4(1, 2, 3, 4)) == 24
    assert trt.Dims3([1, 2, 3]) == (1, 2, 3) == trt.Dims3(1, 2, 3)
    assert tuple(trt.Permutation([2, 0, 1])) == (2, 0, 1)
    assert trt.DataType(0) is trt.float32 and "FP16" in trt.BuilderFlag.__members__
    assert trt.__version__.startswith("10.16.") and trt.get_nv_onnx_parser_version() == 101600
    assert trt.Weights(trt.float32).size == 0 and trt.Weights(np.ones(3, np.float32)).dtype == trt.float32
    with pytest.raises(TypeError):
        trt.nptype("float32")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = trt.Nothing


def test_a_debug_listener_is_kept_and_told_nothing(engine: trt.ICudaEngine) -> None:
    context = engine.create_execution_context()
    listener = trt.IDebugListener()
    assert context.set_debug_listener(listener) and context.get_debug_listener() is listener
    assert not engine.is_debug_tensor("x")
    assert not context.set_input_consumed_event(1)
    with context as same:
        assert same is context
