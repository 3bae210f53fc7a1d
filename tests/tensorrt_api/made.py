"""What the tests of this folder share: small networks and engines, and loggers that keep what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import neurenix.hardware.tensorrt as trt


class Kept(trt.ILogger):
    """A logger that keeps its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[trt.Logger.Severity, str]] = []

    def log(self, severity: trt.Logger.Severity, msg: str) -> None:
        self.messages.append((severity, msg))

    @property
    def errors(self) -> list[str]:
        return [msg for severity, msg in self.messages if severity == trt.Logger.ERROR]


def quick(builder: trt.Builder) -> trt.IBuilderConfig:
    config = builder.create_builder_config()
    config.builder_optimization_level = 0
    return config


def engine_of(
    build: Callable[[trt.INetworkDefinition], Any],
    change: Callable[[trt.Builder, trt.IBuilderConfig], Any] = lambda builder, config: None,
    logger: Any = None,
) -> trt.ICudaEngine:
    """An engine of what `build` adds and gives: its results."""
    builder = trt.Builder(logger)
    network = builder.create_network()
    made = build(network)
    for tensor in made if isinstance(made, (list, tuple)) else [made]:
        network.mark_output(tensor)
    config = quick(builder)
    change(builder, config)
    return builder.build_engine(network, config)


def profile(builder: trt.Builder, config: trt.IBuilderConfig, **shapes: Any) -> None:
    made = builder.create_optimization_profile()
    for name, (low, opt, high) in shapes.items():
        made.set_shape(name, low, opt, high)
    config.add_optimization_profile(made)


def constant(network: trt.INetworkDefinition, value: Any, dtype: Any = np.float32) -> trt.ILayer:
    array = np.asarray(value, dtype)
    return network.add_constant(array.shape, array)


class Grown(trt.IOutputAllocator):
    """An allocator of numpy's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[str, np.ndarray] = {}
        self.shapes: dict[str, trt.Dims] = {}

    def reallocate_output_async(self, tensor_name: str, memory: Any, size: int, alignment: int, stream: int) -> int:
        self.memory[tensor_name] = np.empty(size, np.uint8)
        return self.memory[tensor_name].ctypes.data

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        self.shapes[tensor_name] = shape

    def array(self, name: str, dtype: Any) -> np.ndarray:
        shape = tuple(self.shapes[name])
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.memory[name][:count].view(dtype).reshape(shape)
