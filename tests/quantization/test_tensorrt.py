"""TensorRT's way to int8: calibrators, BuilderFlag.INT8, ranges of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.machine import HAS_INT8

SHAPE = (4, 3, 8, 8)


def weights(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) * 0.2


def network_of(builder: trt.Builder) -> tuple[trt.INetworkDefinition, list[trt.ITensor]]:
    network = builder.create_network()
    x = network.add_input("x", trt.float32, SHAPE)
    first = network.add_convolution_nd(x, 8, (3, 3), weights(8, 3, 3, 3), weights(8))
    relu = network.add_activation(first.get_output(0), trt.ActivationType.RELU)
    second = network.add_convolution_nd(relu.get_output(0), 5, (1, 1), weights(5, 8, 1, 1), weights(5))
    network.mark_output(second.get_output(0))
    return network, [x, relu.get_output(0)]


def config_of(builder: trt.Builder, *flags: trt.BuilderFlag) -> trt.IBuilderConfig:
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    config.timing_cache = False
    for flag in flags:
        config.set_flag(flag)
    return config


def run(engine: Any, x: Any) -> Any:
    return engine.create_execution_context().execute(x)


def sqnr(got: Any, want: Any) -> float:
    return float(10 * np.log10(np.mean(want**2) / np.mean((got - want) ** 2)))


def batches(count: int = 4) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=SHAPE).astype(np.float32) for _ in range(count)]


class Kept:
    """What a calibrator in TensorRT's shape does; `addresses`: it gives pointers, as scripts with pycuda do."""

    def __init__(self, addresses: bool = False) -> None:
        super().__init__()
        self.left = batches()
        self.addresses = addresses
        self.held: list[Any] = []
        self.cache: bytes | None = None
        self.asked = 0

    def get_batch_size(self) -> int:
        return SHAPE[0]

    def get_batch(self, names: Sequence[str]) -> list[Any] | None:
        assert list(names) == ["x"]
        self.asked += 1
        if not self.left:
            return None
        self.held.append(self.left.pop())
        return [self.held[-1].ctypes.data if self.addresses else self.held[-1]]

    def read_calibration_cache(self) -> bytes | None:
        return self.cache

    def write_calibration_cache(self, cache: bytes) -> None:
        self.cache = bytes(cache)


@pytest.mark.parametrize(
    "base",
    [
        trt.IInt8EntropyCalibrator,
        trt.IInt8EntropyCalibrator2,
        trt.IInt8MinMaxCalibrator,
        trt.IInt8LegacyCalibrator,
    ],
)
@pytest.mark.parametrize("addresses", [False, True])
def test_calibrators_of_scripts(base: type, addresses: bool) -> None:
    own = type("Own", (Kept, base), {})
    builder = trt.Builder()
    network, _ = network_of(builder)
    exact = builder.build_engine(network, config_of(builder))
    config = config_of(builder, trt.BuilderFlag.INT8)
    assert config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    given = own(addresses)
    config.int8_calibrator = given
    engine = builder.build_engine(network, config)
    x = batches(1)[0]
    assert sqnr(run(engine, x), run(exact, x)) > 25
    assert given.asked == 5 and given.cache is not None and given.cache.startswith(b"TRT-")
    # With a cache no batch is asked for, and with that of times the engine is the same.
    cached = own(addresses)
    cached.cache = given.cache
    config.int8_calibrator = cached
    again = builder.build_engine(network, config)
    assert cached.asked == 0
    np.testing.assert_array_equal(run(again, x), run(engine, x))


def test_addresses_have_the_shapes_of_a_profile() -> None:
    """Pictures of any size: at an address lies what the calibration profile says, or else the first one."""

    class Pictures(trt.IInt8MinMaxCalibrator):
        def __init__(self, size: tuple[int, int], batch: int) -> None:
            super().__init__()
            self.batch, self.held = batch, np.zeros((batch, 3, *size), np.float32)
            # What lies behind the memory of one size counts for another size alone.
            self.held.ravel()[-1], self.given = 5.0, False

        def get_batch_size(self) -> int:
            return self.batch

        def get_batch(self, names: Sequence[str]) -> list[Any] | None:
            given, self.given = self.given, True
            return None if given else [self.held.ctypes.data]

        def write_calibration_cache(self, cache: bytes) -> None:
            self.cache = bytes(cache)

    def profile(*shapes: tuple[int, ...]) -> trt.IOptimizationProfile:
        made = builder.create_optimization_profile()
        made.set_shape("x", *shapes)
        return made

    def found(given: Pictures, own: trt.IOptimizationProfile | None) -> float:
        config = config_of(builder, trt.BuilderFlag.INT8)
        config.int8_calibrator = given
        config.add_optimization_profile(profile((1, 3, 8, 8), (2, 3, 16, 12), (4, 3, 32, 32)))
        if own is not None:
            assert config.set_calibration_profile(own)
        builder.build_engine(network, config)
        line = next(line for line in given.cache.decode().splitlines() if line.startswith("x:"))
        return 127 * float(np.uint32(int(line.split(": ")[1], 16)).view(np.float32))

    builder = trt.Builder()
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 3, -1, -1))
    network.mark_output(network.add_convolution_nd(x, 8, (3, 3), weights(8, 3, 3, 3)).get_output(0))
    np.testing.assert_allclose(found(Pictures((16, 12), 3), None), 5.0, rtol=1e-6)
    np.testing.assert_allclose(found(Pictures((24, 20), 2), profile(*[(2, 3, 24, 20)] * 3)), 5.0, rtol=1e-6)
    # A profile of fewer pixels ends before the one that is not zero.
    assert found(Pictures((24, 20), 2), profile(*[(1, 3, 24, 20)] * 3)) < 1
    config = config_of(builder, trt.BuilderFlag.INT8)
    config.int8_calibrator = Pictures((8, 8), 1)
    with pytest.raises(nx.UnsupportedError, match="set_calibration_profile"):
        builder.build_engine(network, config)


def test_ranges_of_tensors_take_the_place_of_a_calibrator() -> None:
    builder = trt.Builder()
    network, tensors = network_of(builder)
    exact = builder.build_engine(network, config_of(builder))
    config = config_of(builder, trt.BuilderFlag.INT8)
    assert tensors[0].set_dynamic_range(-4.0, 3.5) and tensors[0].dynamic_range == (-4.0, 3.5)
    with pytest.raises(nx.InvalidArgumentError, match="tensors that are quantized have no range"):
        builder.build_engine(network, config)
    tensors[1].dynamic_range = (0.0, 5.0)
    x = batches(1)[0]
    assert sqnr(run(builder.build_engine(network, config), x), run(exact, x)) > 25
    tensors[0].reset_dynamic_range()
    assert tensors[0].dynamic_range is None
    with pytest.raises(nx.InvalidArgumentError, match="this is no range"):
        tensors[0].set_dynamic_range(1.0, float("nan"))


def test_conveniences_and_what_is_no_calibrator() -> None:
    assert trt.CalibrationAlgo is trt.CalibrationAlgoType
    loader = [(batch, np.zeros(4)) for batch in batches()]
    made = trt.DataLoaderCalibrator(loader, algo_type=trt.CalibrationAlgo.MINMAX_CALIBRATION)
    assert made.method == "minmax"
    builder = trt.Builder()
    network, _ = network_of(builder)
    config = config_of(builder, trt.BuilderFlag.INT8)
    config.int8_calibrator = made
    exact = builder.build_engine(network, config_of(builder))
    x = batches(1)[0]
    assert sqnr(run(builder.build_engine(network, config), x), run(exact, x)) > 25
    assert builder.platform_has_fast_int8 == HAS_INT8
    with pytest.raises(nx.InvalidArgumentError, match="between 0 and 100"):
        trt.PercentileCalibrator(batches(), percentile=0)
    with pytest.raises(nx.InvalidArgumentError, match="there is no method of calibration 'entropi'"):
        trt.DataLoaderCalibrator(loader, algo_type="entropi")
