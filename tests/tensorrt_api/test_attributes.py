"""Attributes that are set: those that TensorRT has work or say why not, and a misspelt one is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.tensorrt_api.made import Kept, engine_of, profile


def relu(network: trt.INetworkDefinition) -> trt.ILayer:
    return network.add_activation(network.add_input("x", trt.float32, (2, 8)), trt.ActivationType.RELU)


def objects() -> dict[str, Any]:
    engine = engine_of(relu, lambda builder, config: config.set_flag(trt.BuilderFlag.REFIT))
    builder = trt.Builder()
    network = builder.create_network()
    return {
        "Builder": builder,
        "INetworkDefinition": network,
        "ITensor": network.add_input("x", trt.float32, (1, 1)),
        "ILoop": network.add_loop(),
        "IOptimizationProfile": builder.create_optimization_profile(),
        "ICudaEngine": engine,
        "IExecutionContext": engine.create_execution_context(),
        "Runtime": trt.Runtime(),
        "Refitter": trt.Refitter(engine, None),
        "OnnxParser": trt.OnnxParser(builder.create_network()),
        "EngineInspector": engine.create_engine_inspector(),
        "ISerializationConfig": engine.create_serialization_config(),
        "IRuntimeConfig": engine.create_runtime_config(),
        "ITimingCache": builder.create_builder_config().create_timing_cache(b""),
        "Logger": trt.Logger(),
        "IPluginRegistry": trt.get_plugin_registry(),
    }


#: An attribute that each has and lets be set, misspelt.
MISSPELT = {
    "Builder": ("fp16_mod", "fp16_mode"),
    "INetworkDefinition": ("nmae", "name"),
    "ITensor": ("dtyp", "dtype"),
    "ILoop": ("names", "name"),
    "IOptimizationProfile": ("extra_memory_targets", "extra_memory_target"),
    "ICudaEngine": ("error_recorde", "error_recorder"),
    "IExecutionContext": ("profilr", "profiler"),
    "Runtime": ("max_thread", "max_threads"),
    "Refitter": ("weights_validatoin", "weights_validation"),
    "OnnxParser": ("flag", "flags"),
    "EngineInspector": ("execution_contxt", "execution_context"),
    "ISerializationConfig": ("flagz", "flags"),
    "Logger": ("min_severty", "min_severity"),
    "IPluginRegistry": ("error_recordr", "error_recorder"),
}


def test_a_misspelt_attribute_is_refused_with_the_nearest_name() -> None:
    made = objects()
    for name, (wrong, right) in MISSPELT.items():
        with pytest.raises(AttributeError, match=f"{name} has no attribute {wrong!r}.*nearest name is {right!r}"):
            setattr(made[name], wrong, 1)
    for name, thing in made.items():
        with pytest.raises(AttributeError, match=r"can't be set|no attribute"):
            thing.zzz = 1
        assert not hasattr(thing, "zzz"), name


def test_what_can_not_be_set_says_so() -> None:
    made = objects()
    for name, attribute in [("Builder", "num_DLA_cores"), ("Builder", "create_network"), ("ICudaEngine", "num_layers")]:
        with pytest.raises(AttributeError, match=attribute):
            setattr(made[name], attribute, 1)
    for name, attribute, why in [("Builder", "gpu_allocator", "memory"), ("Runtime", "DLA_core", "there is no DLA")]:
        with pytest.raises(nx.UnsupportedError, match=why):
            setattr(made[name], attribute, 0)


def test_a_class_of_a_script_has_attributes_of_its_own() -> None:
    class Mine(trt.Builder):
        def __init__(self) -> None:
            super().__init__()
            self.path = "model"

    assert Mine().path == "model"


def test_the_modes_of_tensorrt_7() -> None:
    rng = np.random.default_rng(0)
    kernel, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 8, 3, 3), (1, 8, 12, 12)))

    def build(half: bool, **given: Any) -> trt.ICudaEngine:
        logger = Kept()
        builder = trt.Builder(logger)
        builder.max_batch_size = 1
        builder.max_workspace_size = 1 << 28
        builder.fp16_mode = half
        builder.refittable = True
        assert (builder.fp16_mode, builder.max_workspace_size) == (half, 1 << 28)
        network = builder.create_network()
        conv = network.add_convolution(network.add_input("x", trt.float32, x.shape), 8, (3, 3), kernel)
        network.mark_output(conv)
        engine = builder.build_cuda_engine(network, **given)
        said = [text for severity, text in logger.messages if "builder.fp16_mode" in text]
        assert len(said) == len(given)
        return engine

    full, half = build(False), build(True)
    assert half.refittable and json_of(half) != json_of(full)
    told = build(True, config=trt.Builder().create_builder_config())
    assert not told.refittable
    assert np.array_equal(run(told, x), run(full, x))


def json_of(engine: trt.ICudaEngine) -> str:
    """What decides the precision: float16 stands in the network, or why there is none."""
    return engine._engine.dump() + str(engine._engine.notes)


def run(engine: trt.ICudaEngine, x: np.ndarray[Any, Any]) -> Any:
    return engine.create_execution_context().execute(x)


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_weights_of_four_bits_lie_two_to_a_byte(count: int) -> None:
    values = np.arange(count, dtype=np.int8) - 4
    pairs = np.append(values & 0xF, np.zeros(count % 2, np.int8)).astype(np.uint8)
    packed = pairs[::2] | pairs[1::2] << 4
    weights = trt.Weights(trt.int4, packed.ctypes.data, count)
    assert (weights.size, weights.nbytes) == (count, len(packed))
    assert weights.numpy().astype(np.int8).tolist() == values.tolist()
    assert weights.dtype == trt.int4


def test_packed_weights_end_at_the_end_of_their_memory() -> None:
    """The page behind them may not be read."""
    import ctypes
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    guard = ctypes.c_void_p(base + mmap.PAGESIZE)
    assert libc.mprotect(guard, mmap.PAGESIZE, 0) == 0
    count = 101
    address = base + mmap.PAGESIZE - (count + 1) // 2
    ctypes.memset(address, 0x21, (count + 1) // 2)
    values = trt.Weights(trt.int4, address, count).numpy().astype(np.int8)
    assert values.tolist() == [1, 2] * 50 + [1]
    assert libc.mprotect(guard, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_the_profile_comes_first_as_tensorrt_has_it() -> None:
    def change(builder: trt.Builder, config: trt.IBuilderConfig) -> None:
        profile(builder, config, x=((1, 8), (2, 8), (4, 8)))

    def dynamic(network: trt.INetworkDefinition) -> trt.ILayer:
        return network.add_activation(network.add_input("x", trt.float32, (-1, 8)), trt.ActivationType.RELU)

    engine = engine_of(dynamic, change)
    assert engine.get_tensor_profile_values(0, "x") == [] == engine.get_tensor_profile_values("x", 0)
    with pytest.raises(nx.InvalidArgumentError):
        engine.get_tensor_profile_values(0, "y")
    with pytest.raises(nx.InvalidArgumentError):
        engine.get_tensor_profile_values(3, "x")


def test_a_refitter_reads_weights_when_it_refits() -> None:
    def scaled(network: trt.INetworkDefinition) -> trt.ILayer:
        x = network.add_input("x", trt.float32, (1, 3, 4, 4))
        layer = network.add_convolution_nd(x, 3, (1, 1), np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1))
        layer.name = "mix"
        return layer

    engine = engine_of(scaled, lambda builder, config: config.set_flag(trt.BuilderFlag.REFIT))
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 4)).astype(np.float32)
    new = np.zeros((3, 3, 1, 1), np.float32)
    refitter = trt.Refitter(engine, None)
    assert refitter.set_named_weights("mix.weight", trt.Weights(new))
    new[...] = 2 * np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
    assert np.array_equal(refitter.get_named_weights("mix.weight").numpy(), new)
    assert refitter.refit_cuda_engine()
    np.testing.assert_allclose(run(engine, x), 2 * x, rtol=1e-6)
    new[...] = 0
    np.testing.assert_allclose(run(engine, x), 2 * x, rtol=1e-6)
