"""TensorRT's API on addresses of a GPU: calls in torch's streams, allocators, refit, profiles, times, Polygraphy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix import _native
from tests.tensorrt_api.made import Kept, engine_of, profile

torch = pytest.importorskip("torch")

MISSING = dict(_native.provider_states())["cuda"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(MISSING is not None, reason=f"no GPU for the CUDA provider: {MISSING}"),
]
KERNEL = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
BIAS = np.random.default_rng(1).standard_normal(8).astype(np.float32)


def convolution(network: trt.INetworkDefinition) -> Any:
    x = network.add_input("x", trt.float32, (-1, 3, -1, -1))
    layer = network.add_convolution_nd(x, 8, (3, 3), KERNEL, BIAS)
    layer.name = "stem"
    y = network.add_activation(layer.get_output(0), trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    return y


def ranges(builder: trt.Builder, config: trt.IBuilderConfig) -> None:
    profile(builder, config, x=((1, 3, 8, 8), (2, 3, 16, 16), (4, 3, 32, 32)))


def exact(x: Any, kernel: np.ndarray = KERNEL, bias: np.ndarray = BIAS) -> Any:
    wide = [torch.from_numpy(array).double().to(x.device) for array in (kernel, bias)]
    return torch.conv2d(x.double(), *wide).relu()


def close(got: Any, want: Any) -> bool:
    return bool((got.double() - want).abs().max() <= 1e-4 * want.abs().max())


@pytest.fixture(scope="module")
def engine() -> trt.ICudaEngine:
    return engine_of(convolution, ranges)


def bound(context: trt.IExecutionContext, x: Any) -> Any:
    """Says shapes and addresses; gives the output."""
    assert context.set_input_shape("x", tuple(x.shape))
    y = torch.zeros(tuple(context.get_tensor_shape("y")), device="cuda")
    assert context.set_tensor_address("x", x.data_ptr()) and context.set_tensor_address("y", y.data_ptr())
    return y


def test_calls_on_the_gpus_addresses_go_in_the_callers_stream(engine: trt.ICudaEngine) -> None:
    assert engine.get_tensor_location("x") == engine.get_tensor_location("y") == trt.TensorLocation.DEVICE
    context, stream = engine.create_execution_context(), torch.cuda.Stream()
    for turn, shape in enumerate([(2, 3, 16, 16), (4, 3, 9, 30), (2, 3, 16, 16), (1, 3, 8, 8)]):
        with torch.cuda.stream(stream):
            # The input is still being computed when the call is made, and what reads the output comes behind it.
            x = torch.randn(shape, device="cuda")
            for _ in range(20):
                x = (x * 1.01).tanh()
            y = bound(context, x)
            assert context.execute_async_v3(stream.cuda_stream), trt.last_error()
            double = y * 2
        stream.synchronize()
        assert close(double / 2, exact(x)), turn


def test_contexts_in_two_streams_do_not_meet(engine: trt.ICudaEngine) -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    contexts = [engine.create_execution_context() for _ in streams]
    inputs = [torch.randn(4, 3, 32, 32, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    outputs = [bound(context, x) for context, x in zip(contexts, inputs, strict=True)]
    for _ in range(50):
        for context, stream in zip(contexts, streams, strict=True):
            assert context.execute_async_v3(stream.cuda_stream)
    torch.cuda.synchronize()
    assert all(close(y, exact(x)) for x, y in zip(inputs, outputs, strict=True))


def test_execute_v2_is_done_when_it_returns(engine: trt.ICudaEngine) -> None:
    context, x = engine.create_execution_context(), torch.randn(2, 3, 16, 16, device="cuda")
    y = bound(context, x)
    torch.cuda.synchronize()
    assert context.execute_v2([x.data_ptr(), y.data_ptr()])
    assert close(y, exact(x))


def test_execute_v2_waits_for_the_default_stream(engine: trt.ICudaEngine) -> None:
    context, given = engine.create_execution_context(), torch.randn(2, 3, 16, 16, device="cuda")
    x = torch.zeros_like(given)
    y = bound(context, x)
    large = torch.randn(8192, 8192, device="cuda")
    torch.cuda.synchronize()
    for turn in range(10):
        for _ in range(6):
            torch.mm(large, large)
        # What x holds before is not what the call may read.
        torch.mul(given, turn + 1, out=x)
        assert context.execute_v2([x.data_ptr(), y.data_ptr()])
        assert close(y, exact(given * (turn + 1)))


def test_execute_v2_breaks_no_capture_of_another_thread(engine: trt.ICudaEngine) -> None:
    context, x = engine.create_execution_context(), torch.randn(2, 3, 16, 16, device="cuda")
    y, z = bound(context, x), torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z.add_(1)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(context.execute_v2, [x.data_ptr(), y.data_ptr()]).result()
        z.add_(1)
    assert close(y, exact(x))
    graph.replay()
    torch.cuda.synchronize()
    assert z.tolist() == [2.0] * 4


class OnDevice(trt.IOutputAllocator):
    """An allocator of torch's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: Any = None
        self.shape: tuple[int, ...] = ()

    def reallocate_output_async(self, tensor_name: str, memory: Any, size: int, alignment: int, stream: int) -> int:
        self.memory = torch.empty(size, dtype=torch.uint8, device="cuda")
        return self.memory.data_ptr()

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        self.shape = tuple(shape)


def test_an_allocator_brings_memory_of_the_gpu(engine: trt.ICudaEngine) -> None:
    context, brought = engine.create_execution_context(), OnDevice()
    x = torch.randn(3, 3, 12, 10, device="cuda")
    bound(context, x)
    assert context.set_output_allocator("y", brought)
    torch.cuda.synchronize()
    assert context.execute_async_v3(0), trt.last_error()
    torch.cuda.synchronize()
    assert brought.shape == (3, 8, 10, 8)
    y = brought.memory[: 4 * 3 * 8 * 10 * 8].view(torch.float32).reshape(brought.shape)
    assert close(y, exact(x))


def test_new_weights_and_a_file_of_them(tmp_path: Path) -> None:
    def change(builder: trt.Builder, config: trt.IBuilderConfig) -> None:
        ranges(builder, config)
        config.set_flag(trt.BuilderFlag.REFIT)

    engine = engine_of(convolution, change)
    refitter = trt.Refitter(engine, trt.Logger())
    other = KERNEL[::-1].copy()
    assert refitter.set_weights("stem", trt.WeightsRole.KERNEL, trt.Weights(other))
    assert refitter.refit_cuda_engine(), trt.last_error()
    opened = trt.Runtime(trt.Logger()).deserialize_cuda_engine(engine.serialize())
    x = torch.randn(2, 3, 16, 16, device="cuda")
    for made in (engine, opened):
        context = made.create_execution_context()
        y = bound(context, x)
        torch.cuda.synchronize()
        assert context.execute_async_v3(0)
        torch.cuda.synchronize()
        assert close(y, exact(x, other))


def test_times_of_layers_are_those_of_kernels_on_the_gpu(engine: trt.ICudaEngine) -> None:
    class Times(trt.IProfiler):
        def __init__(self) -> None:
            super().__init__()
            self.told: dict[str, float] = {}

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.told[layer_name] = ms

    context, times = engine.create_execution_context(), Times()
    context.profiler = times
    x = torch.randn(2, 3, 16, 16, device="cuda")
    y = bound(context, x)
    torch.cuda.synchronize()
    assert context.execute_async_v3(0), trt.last_error()
    torch.cuda.synchronize()
    assert times.told and all(0 < ms < 50 for ms in times.told.values())
    assert close(y, exact(x))


def test_an_address_of_the_processor_is_an_error_and_no_crash(engine: trt.ICudaEngine) -> None:
    context, x = engine.create_execution_context(), torch.randn(2, 3, 16, 16, device="cuda")
    bound(context, x)
    nowhere = np.zeros((2, 3, 16, 16), np.float32)
    assert context.set_tensor_address("x", nowhere.ctypes.data)
    done = context.execute_async_v3(0)
    torch.cuda.synchronize()
    assert not done and "tensor: x" in str(trt.last_error())


def test_polygraphys_runner_and_its_arrays_agree_with_onnxruntime(tmp_path: Path) -> None:
    pytest.importorskip("polygraphy")
    pytest.importorskip("onnxruntime")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5))
    path = tmp_path / "m.onnx"
    torch.onnx.export(module.eval(), (torch.zeros(2, 3, 8, 8),), path, input_names=["x"], dynamo=False)
    with trt.stand_in():
        from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
        from polygraphy.backend.trt import EngineFromNetwork, NetworkFromOnnxPath, TrtRunner
        from polygraphy.comparator import Comparator, CompareFunc

        ours = TrtRunner(EngineFromNetwork(NetworkFromOnnxPath(str(path))))
        theirs = OnnxrtRunner(SessionFromOnnx(str(path), providers=["CPUExecutionProvider"]))
        results = Comparator.run([ours, theirs])
        compare = CompareFunc.simple(rtol=1e-3, atol=1e-4, check_error_stat="elemwise")
        assert bool(Comparator.compare_accuracy(results, compare_func=compare))


def test_what_is_wrong_is_told_where_a_call_is_made() -> None:
    logger = Kept()
    engine = engine_of(convolution, ranges, logger)
    context = engine.create_execution_context()
    assert not context.set_input_shape("x", (2, 3, 64, 64))
    assert "outside of profile 0" in logger.errors[-1]
    assert isinstance(trt.last_error(), nx.Error)
