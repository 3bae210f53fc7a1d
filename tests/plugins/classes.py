"""Plugins that the tests register, and networks of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt


class MyLayer(trt.IPluginV2):
    """What API.md shows, times its parameter."""

    def __init__(self, param):  # type: ignore[no-untyped-def]
        super().__init__()
        self.param = param

    def get_output_shape(self, input_shapes):  # type: ignore[no-untyped-def]
        return input_shapes[0]

    def execute(self, inputs, outputs, stream):  # type: ignore[no-untyped-def]
        np.multiply(inputs[0], self.param, out=outputs[0])


class Halves(trt.IPluginV2):
    """The first half of the columns, and the indices of their greatest elements: two outputs of two dtypes."""

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        rows, columns = input_shapes[0]
        return [(rows, columns // 2), (rows,)]

    def get_output_dtypes(self, input_dtypes: list[Any]) -> Sequence[Any]:
        return [input_dtypes[0], trt.int64]

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        half = inputs[0][:, : outputs[0].shape[1]]
        outputs[0][...] = half
        outputs[1][...] = half.argmax(1)


class Broken(trt.IPluginV2):
    """Fails in the way that its fields say."""

    def __init__(self, method: str = "", how: str = "raise") -> None:
        self.method, self.how = method, how

    def fail(self, method: str) -> None:
        if method == self.method and self.how == "raise":
            raise ZeroDivisionError("as it was told")

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        self.fail("get_output_shape")
        odd = {"float": (2.5,), "none": None, "text": "shape", "negative": (-3,), "unknown": ("nobody",)}
        return [] if self.how == "no outputs" else odd.get(self.how, input_shapes[0])

    def get_output_dtypes(self, input_dtypes: list[Any]) -> Sequence[Any] | None:
        self.fail("get_output_dtypes")
        return {"two dtypes": [trt.float32, trt.float32], "no dtype": ["noise"]}.get(self.how)

    def supports_format_combination(self, pos: int, in_out: list[Any], num_inputs: int) -> bool:
        self.fail("supports_format_combination")
        return self.how != "refuse" or in_out[pos].type != trt.float32

    def get_workspace_size(self, inputs: list[Any], outputs: list[Any]) -> int:
        self.fail("get_workspace_size")
        return -1 if self.how == "no size" else 0

    def serialize(self) -> Any:
        self.fail("serialize")
        return {"method": self.method, "how": object() if self.how == "object" else self.how}

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> Any:
        self.fail("execute")
        x = inputs[0]
        if self.how == "sometimes" and x.flat[0] < 0:
            raise ValueError("less than nothing")
        if self.how == "rebound":
            outputs[0] = x[:1]
            return None
        returned = {"wrong shape": x[:, :1], "wrong dtype": x.astype(np.float64), "wrong count": [x, x]}
        outputs[0][...] = x
        return returned.get(self.how)


class Unwritten(trt.IPluginV2):
    """Two outputs, of which it writes those that its fields say."""

    calls = 0

    def __init__(self, how: str, byte: int = 0) -> None:
        self.how, self.byte = how, byte

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        return [input_shapes[0], input_shapes[0]]

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int) -> None:
        Unwritten.calls += 1
        if self.how == "first alone":
            outputs[0][...] = inputs[0]
        elif self.how == "bytes":
            for output in outputs:
                output.view(np.uint8)[...] = self.byte
        elif self.how == "rebinds":
            outputs = [inputs[0], inputs[0]]


class Scratch(trt.IPluginV2):
    """A sum by way of its workspace."""

    def get_output_shape(self, input_shapes: list[tuple[Any, ...]]) -> Any:
        return (input_shapes[0][0],)

    def get_workspace_size(self, inputs: list[trt.PluginTensorDesc], outputs: list[trt.PluginTensorDesc]) -> int:
        return 4 * inputs[0].dims[0] * inputs[0].dims[1]

    def execute(self, inputs: list[Any], outputs: list[Any], stream: int, workspace: Any = None) -> None:
        between = workspace.view(np.float32).reshape(inputs[0].shape)
        between[...] = inputs[0]
        outputs[0][...] = between.sum(1)


def network(
    plugin: Any, shape: Sequence[int | str] = ("n", 4), dtype: Any = trt.float32, **fields: Any
) -> trt.INetworkDefinition:
    """A network of a plugin between two layers of ours."""
    made = trt.Builder().create_network()
    x = made.add_input("x", dtype, shape)
    layer = made.add_plugin_v2([made.add_activation(x, trt.ActivationType.LEAKY_RELU)], plugin, **fields)
    layer.name = "mine"
    for index in range(layer.num_outputs):
        made.mark_output(layer.get_output(index))
    return made


def built(made: trt.INetworkDefinition) -> trt.ICudaEngine:
    """An engine of a network, on the processor."""
    builder = trt.Builder()
    with nx.hardware.use("cpu"):
        return builder.build_engine(made, builder.create_builder_config())


def leaky(x: np.ndarray) -> np.ndarray:
    """What the layer before the plugin gives."""
    return np.where(x < 0, np.float32(0.01) * x, x).astype(x.dtype)


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work` gives in threads that start together, by their numbers."""
    barrier = threading.Barrier(count)

    def start(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def runs(call: Callable[[np.ndarray], Any], x: np.ndarray, want: np.ndarray | None) -> bool:
    """Whether a call of a plugin that refuses what is less than nothing gives this; without, it must fail."""
    if want is None:
        with pytest.raises(nx.PluginError, match="less than nothing") as raised:
            call(x)
        assert raised.value.layer == "mine"
        return False
    found = call(x)
    np.testing.assert_array_equal(found[0] if isinstance(found, (list, tuple)) else found, want)
    return True
