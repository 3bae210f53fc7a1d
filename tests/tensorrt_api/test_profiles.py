"""Profiles of engines whose sizes depend on data, or that hold loops: there is at least one, as in TensorRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix.hardware.tensorrt as trt
from tests.tensorrt_api.made import Grown, Kept, constant, engine_of

ANY = 2**31 - 1


def places(*shape: int) -> Any:
    def build(network: trt.INetworkDefinition) -> Any:
        layer = network.add_non_zero(network.add_input("x", trt.float32, shape))
        layer.get_output(0).name = "y"
        return layer.get_output(0)

    return build


def powers(network: trt.INetworkDefinition) -> Any:
    """Doubles x five times."""
    x = network.add_input("x", trt.float32, (4,))
    loop = network.add_loop()
    loop.add_trip_limit(constant(network, 5, np.int32).get_output(0), trt.TripLimit.COUNT)
    now = loop.add_recurrence(x)
    now.set_input(1, network.add_elementwise(now, now, trt.ElementWiseOperation.SUM).get_output(0))
    last = loop.add_loop_output(now, trt.LoopOutput.LAST_VALUE).get_output(0)
    last.name = "y"
    return last


@pytest.mark.parametrize("build", [places(4), powers])
def test_fixed_inputs_have_one_profile(build: Any) -> None:
    logger = Kept()
    engine = engine_of(build, logger=logger)
    assert engine.num_optimization_profiles == 1
    assert engine.get_tensor_profile_shape("x", 0) == [(4,)] * 3 and engine.get_binding_size("x") == 16
    assert engine.device_memory_size == engine.device_memory_size_v2 >= 0
    assert engine.get_device_memory_size_for_profile_v2(0) >= 0
    context = engine.create_execution_context()
    assert context.set_optimization_profile_async(0, 0) and context.active_optimization_profile == 0
    assert context.set_input_shape("x", (4,)) and context.all_binding_shapes_specified
    assert not context.set_input_shape("x", (5,)) and "lies outside of profile 0" in logger.errors[-1]
    assert not context.set_optimization_profile_async(1, 0) and "expected: 0 to 0" in logger.errors[-1]
    x, grown = np.float32([0, 2, 0, 3]), Grown()
    context.set_tensor_address("x", x.ctypes.data)
    context.set_output_allocator("y", grown)
    assert context.execute_async_v3(0), trt.last_error()
    want = 32 * x if build is powers else np.stack(np.nonzero(x)).astype(np.int32)
    np.testing.assert_array_equal(grown.array("y", want.dtype), want)


def test_a_dynamic_input_without_a_profile_may_have_any_size() -> None:
    engine = engine_of(places(-1, 3))
    assert engine.num_optimization_profiles == 1
    assert engine.get_tensor_profile_shape("x", 0) == [(0, 3), (1, 3), (ANY, 3)]
    assert engine.device_memory_size >= 0
    context = engine.create_execution_context()
    assert context.set_input_shape("x", (7, 3)) and not context.set_input_shape("x", (7, 4))
