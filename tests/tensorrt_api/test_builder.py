"""How engines are built by TensorRT's API: flags, profiles, timing caches, progress, weights that are replaced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.hardware.tensorrt import TensorRTBackend
from tests.tensorrt_api.made import Kept, constant, engine_of, profile, quick

RNG = np.random.default_rng(0)
KERNEL, BIAS = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32), RNG.standard_normal(4).astype(np.float32)
X = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)


def network_of(builder: trt.Builder, kernel: np.ndarray = KERNEL, bias: np.ndarray = BIAS) -> trt.INetworkDefinition:
    network = builder.create_network()
    x = network.add_input("x", trt.float32, X.shape)
    conv = network.add_convolution_nd(x, 4, (3, 3), kernel, bias)
    conv.name = "stem"
    # Folded into the convolution: a refit must fold it anew.
    scale = network.add_scale(
        conv, trt.ScaleMode.CHANNEL, shift=np.float32([1, 2, 3, 4]), scale=np.full(4, 0.5, np.float32)
    )
    scale.name = "norm"
    network.mark_output(network.add_activation(scale, trt.ActivationType.RELU))
    return network


def wanted(kernel: np.ndarray = KERNEL, bias: np.ndarray = BIAS, shift: Any = (1, 2, 3, 4)) -> np.ndarray:
    torch = pytest.importorskip("torch")
    y = torch.nn.functional.conv2d(*(torch.from_numpy(a) for a in (X, kernel, bias))).numpy()
    return np.maximum(y * 0.5 + np.asarray(shift, np.float32).reshape(4, 1, 1), 0)


def close(got: Any, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# Flags and properties.


def test_flags_are_bits_and_what_is_not_there_is_refused() -> None:
    config = trt.Builder().create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    config.flags |= 1 << int(trt.BuilderFlag.GPU_FALLBACK)
    assert config.get_flag(trt.BuilderFlag.FP16) and config.flags == 1 | 1 << 3
    config.clear_flag(trt.BuilderFlag.FP16)
    assert not config.get_flag(trt.BuilderFlag.FP16)
    for flag in (trt.BuilderFlag.FP4, trt.BuilderFlag.STRIP_PLAN, trt.BuilderFlag.WEIGHT_STREAMING):
        with pytest.raises(nx.UnsupportedError, match=f"{flag} can't be set: "):
            config.set_flag(flag)
    with pytest.raises(nx.InvalidArgumentError, match="this is no BuilderFlag"):
        config.set_flag("FP16")
    for bits in (1 << 60, 1 | 1 << 60, -1):
        with pytest.raises(nx.InvalidArgumentError, match="no such flag of a build"):
            config.flags = bits
    assert config.flags == 1 << 3
    profile = trt.Builder().create_optimization_profile()
    for shapes in ((None, None, None), ((1,), (2,), None), ((1,), (2,), "x"), ((2,), (1,), (3,))):
        with pytest.raises(nx.ShapeError):
            profile.set_shape("x", *shapes)
    assert profile.get_shape("x") == []


def test_properties_that_ask_for_what_is_not_there_are_refused_with_the_reason() -> None:
    config = trt.Builder().create_builder_config()
    config.DLA_core, config.default_device_type = -1, trt.DeviceType.GPU
    config.int8_calibrator = None
    config.avg_timing_iterations, config.profiling_verbosity = 4, trt.ProfilingVerbosity.NONE
    assert (config.avg_timing_iterations, config.profiling_verbosity) == (4, trt.ProfilingVerbosity.NONE)
    config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    for name, value, why in (
        ("default_device_type", trt.DeviceType.DLA, "no DLA"),
        ("algorithm_selector", object(), "by their time"),
        ("engine_capability", trt.EngineCapability.SAFETY, "one runtime"),
    ):
        with pytest.raises(nx.UnsupportedError, match=why):
            setattr(config, name, value)
    with pytest.raises(nx.InvalidArgumentError, match="is no ProfilingVerbosity"):
        config.profiling_verbosity = 2
    with pytest.raises(nx.InvalidArgumentError, match="this is no calibrator"):
        config.int8_calibrator = object()
    with pytest.raises(AttributeError, match="the nearest name is 'max_aux_streams'"):
        _ = config.max_aux_stream


def test_pools_profiles_and_other_words_are_kept() -> None:
    config = trt.Builder().create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_DRAM, 123)
    assert config.get_memory_pool_limit(trt.MemoryPoolType.TACTIC_DRAM) == 123
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 0
    made = trt.Builder().create_optimization_profile()
    assert not made and made.get_shape("x") == []
    made.set_shape("x", (1, 2), (2, 2), (3, 2))
    assert made and made.get_shape("x") == [(1, 2), (2, 2), (3, 2)]
    made.set_shape_input("sizes", [1], [2], [3])
    assert made.get_shape_input("sizes") == [[1], [2], [3]]
    made.extra_memory_target = 0.5
    for wrong in (lambda: made.set_shape("x", (3,), (2,), (4,)), lambda: made.set_shape_input("s", [3], [2], [4])):
        with pytest.raises(nx.Error, match="not ordered"):
            wrong()
    assert config.add_optimization_profile(made) == 0 and config.num_optimization_profiles == 1
    with pytest.raises(nx.InvalidArgumentError, match="no IOptimizationProfile"):
        config.add_optimization_profile({"x": 1})
    config.set_tactic_sources(1 << int(trt.TacticSource.CUDNN))
    assert config.get_tactic_sources() == 4
    config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
    assert config.get_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806)
    config.set_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    assert config.get_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    config.reset()
    assert config.num_optimization_profiles == config.flags == 0


def test_a_builder_tells_of_the_machine_and_takes_threads() -> None:
    builder = trt.Builder()
    assert isinstance(builder.platform_has_fast_fp16, bool) and isinstance(builder.platform_has_fast_int8, bool)
    assert builder.num_DLA_cores == 0
    builder.max_threads = 1
    assert engine_of(lambda n: n.add_identity(n.add_input("x", trt.float32, (2,)))) is not None
    builder.reset()
    assert builder.max_threads >= 1


# Failures.


def test_a_build_that_fails_gives_none_and_the_whole_error() -> None:
    logger = Kept()
    builder = trt.Builder(logger)
    network, config = network_of(builder), quick(builder)
    profile(builder, config, y=((1,), (1,), (1,)))
    assert builder.build_serialized_network(network, config) is None
    assert builder.build_engine_with_config(network, config) is None
    assert logger.errors == [str(trt.last_error())] * 2
    assert "y" in logger.errors[0]
    with pytest.raises(nx.InvalidArgumentError):
        builder.build_engine(network, config)
    assert not builder.is_network_supported(network, config)
    assert builder.is_network_supported(network, quick(builder))


def test_int8_of_a_network_that_says_how_and_of_one_that_does_not() -> None:
    builder = trt.Builder(Kept())
    config = quick(builder)
    config.set_flag(trt.BuilderFlag.INT8)
    # Without a calibrator the weights alone have 8 bits.
    assert builder.build_serialized_network(network_of(builder), config) is not None
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (4,))
    scale = constant(network, 0.1)
    network.mark_output(network.add_dequantize(network.add_quantize(x, scale), scale))
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None
    np.testing.assert_allclose(
        engine.create_execution_context().execute(np.float32([0.12, -0.26, 99, 0])), [0.1, -0.3, 12.7, 0], rtol=1e-5
    )


def test_a_lower_precision_is_what_the_flag_says() -> None:
    builder = trt.Builder()
    config = quick(builder)
    config.set_flag(trt.BuilderFlag.BF16)
    engine = builder.build_engine(network_of(builder), config)
    assert engine._engine.precision == "bf16" and engine.get_tensor_dtype("x") == trt.float32
    np.testing.assert_allclose(engine.create_execution_context().execute(X), wanted(), rtol=0.05, atol=0.1)


def test_an_engine_goes_to_a_stream() -> None:
    class Writer:
        data = b""

        def write(self, data: bytes) -> int:
            self.data += data
            return len(data)

    builder, writer = trt.Builder(), Writer()
    assert builder.build_serialized_network_to_stream(network_of(builder), quick(builder), writer)
    engine = trt.Runtime().deserialize_cuda_engine(writer.data)
    close(engine.create_execution_context().execute(X), wanted())
    config = engine.create_serialization_config()
    with pytest.raises(nx.UnsupportedError, match="holds its weights"):
        config.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    again = trt.Runtime().deserialize_cuda_engine(engine.serialize_with_config(config))
    close(again.create_execution_context().execute(X), wanted())


# Timing caches.


def timed(builder: trt.Builder, cache: trt.ITimingCache) -> trt.IBuilderConfig:
    config = builder.create_builder_config()
    config.builder_optimization_level = 3
    config.set_timing_cache(cache, ignore_mismatch=False)
    return config


def test_a_timing_cache_is_filled_kept_and_read_again() -> None:
    builder = trt.Builder()
    config = timed(builder, builder.create_builder_config().create_timing_cache(b""))
    builder.build_engine(network_of(builder), config)
    first = config.get_timing_cache().serialize()
    assert first
    again = timed(builder, config.create_timing_cache(first))
    builder.build_engine(network_of(builder), again)
    assert again.get_timing_cache().serialize() == first
    other = config.create_timing_cache(b"no times at all\n")
    assert len(other) == 0 and other.combine(config.get_timing_cache(), ignore_mismatch=True)
    assert other.serialize() == first
    assert other.reset() and other.serialize() == b""
    with pytest.raises(nx.InvalidArgumentError, match="no ITimingCache"):
        config.set_timing_cache(first)


def test_without_timing_caches_nothing_is_kept() -> None:
    builder = trt.Builder()
    config = timed(builder, trt.ITimingCache())
    config.set_flag(trt.BuilderFlag.DISABLE_TIMING_CACHE)
    builder.build_engine(network_of(builder), config)
    assert len(config.get_timing_cache()) == 0


# Progress.


class Monitor(trt.IProgressMonitor):
    def __init__(self, stop: Any = lambda phase, step: False) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []
        self.stop = stop

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self.told.append(("start", phase_name, parent_phase, num_steps))

    def step_complete(self, phase_name: str, step: int) -> bool:
        self.told.append(("step", phase_name, step))
        return not self.stop(phase_name, step)

    def phase_finish(self, phase_name: str) -> None:
        self.told.append(("finish", phase_name))


def build_watched(monitor: Monitor) -> Any:
    builder = trt.Builder(Kept())
    config = quick(builder)
    config.progress_monitor = monitor
    return builder.build_serialized_network(network_of(builder), config)


def test_a_monitor_is_told_phases_in_order() -> None:
    monitor = Monitor()
    assert build_watched(monitor) is not None
    whole = "Building the engine"
    assert monitor.told[0] == ("start", whole, None, 1) and monitor.told[-1] == ("finish", whole)
    open_phases: list[str] = []
    steps: dict[str, list[int]] = {}
    for what, phase, *rest in monitor.told:
        if what == "start":
            assert rest[0] == (open_phases[-1] if open_phases else None)
            open_phases.append(phase)
            steps[phase] = [0, rest[1]]
        elif what == "step":
            assert phase == open_phases[-1] and rest[0] == steps[phase][0]
            steps[phase][0] += 1
        else:
            assert open_phases.pop() == phase and steps[phase][0] == steps[phase][1]
    assert not open_phases and "Tuning kernels" in steps


def test_a_monitor_ends_a_build() -> None:
    monitor = Monitor(lambda phase, step: phase == "Tuning kernels")
    assert build_watched(monitor) is None
    assert "ended by who follows its progress\n  got: Tuning kernels: 1 of" in str(trt.last_error())
    finished = [phase for what, phase, *_ in monitor.told if what == "finish"]
    assert finished[-2:] == ["Tuning kernels", "Building the engine"]


def test_what_a_monitor_raises_comes_out() -> None:
    def interrupt(phase: str, step: int) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_watched(Monitor(interrupt))
    with pytest.raises(nx.InvalidArgumentError, match="IProgressMonitor"):
        trt.Builder().create_builder_config().progress_monitor = object()


def test_the_short_way_has_progress_too() -> None:
    told: list[tuple[str, int, int]] = []
    network = network_of(trt.Builder()).to_network()
    TensorRTBackend().optimize_model(network, optimization_level=0, progress=lambda *step: told.append(step))
    assert {phase for phase, _, _ in told} == {"Simplifying the network", "Tuning kernels"}
    with pytest.raises(nx.InvalidArgumentError, match="ended by who follows"):
        TensorRTBackend().optimize_model(network, optimization_level=0, progress=lambda *step: False)


# Weights that are replaced.


@pytest.fixture
def refittable() -> trt.ICudaEngine:
    builder = trt.Builder(Kept())
    config = quick(builder)
    config.set_flag(trt.BuilderFlag.REFIT)
    return builder.build_engine(network_of(builder), config)


NEW = RNG.standard_normal(KERNEL.shape).astype(np.float32)


def test_weights_are_replaced_by_name_and_contexts_follow(refittable: trt.ICudaEngine) -> None:
    context = refittable.create_execution_context()
    close(context.execute(X), wanted())
    refitter = trt.Refitter(refittable, trt.Logger())
    assert sorted(refitter.get_all_weights()) == ["norm.scale", "norm.shift", "stem.bias", "stem.weight"]
    layers, roles = refitter.get_all()
    assert set(zip(layers, roles, strict=True)) == {
        ("stem", trt.WeightsRole.KERNEL), ("stem", trt.WeightsRole.BIAS),
        ("norm", trt.WeightsRole.SHIFT), ("norm", trt.WeightsRole.SCALE),
    }  # fmt: skip
    assert refitter.get_missing_weights() == [] and refitter.get_missing() == ([], [])
    assert refitter.set_named_weights("stem.weight", NEW)
    assert refitter.set_weights("norm", trt.WeightsRole.SHIFT, trt.Weights(np.zeros(4, np.float32)))
    close(context.execute(X), wanted())
    assert refitter.refit_cuda_engine()
    close(context.execute(X), wanted(NEW, shift=(0, 0, 0, 0)))
    np.testing.assert_array_equal(refitter.get_named_weights("stem.weight").numpy(), NEW)
    assert refitter.set_named_weights("stem.weight", KERNEL)
    assert refitter.set_named_weights("norm.shift", np.float32([1, 2, 3, 4]))
    assert refitter.refit_cuda_engine_async(0)
    y = np.empty((1, 4, 6, 6), np.float32)
    assert context.execute_v2([X.ctypes.data, y.ctypes.data])
    close(y, wanted())


def test_weights_that_do_not_fit_are_refused(refittable: trt.ICudaEngine) -> None:
    logger = Kept()
    refitter = trt.Refitter(refittable, logger)
    assert not refitter.set_named_weights("stem.weights", NEW)
    assert "the nearest name is 'stem.weight'" in logger.errors[-1]
    assert not refitter.set_named_weights("stem.weight", NEW[:2])
    assert not refitter.set_named_weights("stem.weight", NEW.astype(np.float64))
    assert "expected: float32[4, 3, 3, 3]" in logger.errors[-1]
    assert refitter.set_named_weights("stem.bias", np.zeros(4, np.float32))
    assert refitter.unset_named_weights("stem.bias") and not refitter.unset_named_weights("stem.bias")
    prototype = refitter.get_weights_prototype("stem.bias")
    assert (prototype.dtype, prototype.size) == (trt.float32, 4)
    assert refitter.refit_cuda_engine()
    close(refittable.create_execution_context().execute(X), wanted())
    builder = trt.Builder()
    with pytest.raises(nx.InvalidArgumentError, match=r"trt\.BuilderFlag\.REFIT"):
        trt.Refitter(builder.build_engine(network_of(builder), quick(builder)))


def test_an_engine_stays_refittable_in_its_file(refittable: trt.ICudaEngine) -> None:
    opened = trt.Runtime().deserialize_cuda_engine(refittable.serialize())
    assert opened.refittable
    refitter = trt.Refitter(opened, None)
    assert refitter.set_named_weights("stem.weight", NEW) and refitter.refit_cuda_engine()
    close(opened.create_execution_context().execute(X), wanted(NEW))
    twice = trt.Runtime().deserialize_cuda_engine(opened.serialize())
    close(twice.create_execution_context().execute(X), wanted(NEW))


def test_an_onnx_model_brings_other_weights() -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper

    def model(kernel: np.ndarray) -> bytes:
        port = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node("Conv", ["x", "kernel"], ["y"])], "g",
            [port("x", onnx.TensorProto.FLOAT, X.shape)], [port("y", onnx.TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(kernel, "kernel")],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()

    builder = trt.Builder()
    network, config = builder.create_network(), quick(builder)
    assert trt.OnnxParser(network).parse(model(KERNEL))
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine(network, config)
    refitter = trt.Refitter(engine, Kept())
    parser = trt.OnnxParserRefitter(refitter, Kept())
    assert not parser.refit_from_bytes(b"no model") and parser.num_errors == 1
    assert parser.refit_from_bytes(model(NEW)) and refitter.refit_cuda_engine()
    got = engine.create_execution_context().execute(X)
    torch = pytest.importorskip("torch")
    close(got, torch.nn.functional.conv2d(torch.from_numpy(X), torch.from_numpy(NEW)).numpy())


def test_the_short_way_updates_weights_all_or_nothing() -> None:
    network = network_of(trt.Builder()).to_network()
    model = TensorRTBackend().optimize_model(network, optimization_level=0, refittable=True)
    with pytest.raises(nx.InvalidArgumentError, match="the nearest name is"):
        model.update_weights({"stem.weight": NEW, "stem.bais": BIAS})
    with pytest.raises(nx.ShapeError, match="another dtype or shape"):
        model.update_weights({"stem.weight": NEW, "stem.bias": BIAS[:2]})
    close(model(X), wanted())
    model.update_weights({"stem.weight": NEW})
    close(model(X), wanted(NEW))
    before = model(X)
    model.update_weights({"stem.weight": KERNEL})
    model.update_weights({"stem.weight": NEW})
    np.testing.assert_array_equal(model(X), before)
    plain = TensorRTBackend().optimize_model(network, optimization_level=0)
    with pytest.raises(nx.InvalidArgumentError, match="refittable=True"):
        plain.update_weights({"stem.weight": NEW})
