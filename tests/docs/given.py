"""The files that pages take for granted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy
from onnx import helper, numpy_helper

_FLOAT = onnx.TensorProto.FLOAT


def classifier(name: str = "input", batch: str | int = "batch", size: int = 224, path: str = "model.onnx") -> None:
    """A small network from images to ten logits."""
    rng = np.random.default_rng(0)
    weights = {"conv.weight": (8, 3, 3, 3), "fc.weight": (8, 10), "fc.bias": (10,)}
    nodes = [
        helper.make_node("Conv", [name, "conv.weight"], ["c"], "conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["logits"], "fc"),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info(name, _FLOAT, [batch, 3, size, size])],
        [helper.make_tensor_value_info("logits", _FLOAT, [batch, 10])],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()],
    )
    _save(graph, path)


def cells(path: str = "cells.onnx") -> None:
    """Two convolutions of one channel, for any batch of 256x256."""
    rng = np.random.default_rng(0)
    weights = {"0.weight": (4, 1, 3, 3), "0.bias": (4,), "1.weight": (2, 4, 3, 3), "1.bias": (2,)}
    nodes = [
        helper.make_node("Conv", ["input", "0.weight", "0.bias"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "1.weight", "1.bias"], ["output"], "scores", pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "cells",
        [helper.make_tensor_value_info("input", _FLOAT, ["batch", 1, 256, 256])],
        [helper.make_tensor_value_info("output", _FLOAT, ["batch", 2, 256, 256])],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()],
    )
    _save(graph, path)


def open_convolution() -> None:
    """A convolution of which only the channels are fixed."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", _FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("y", _FLOAT, None)],
        [numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")],
    )
    _save(graph, "model.onnx")


def cancelling(path: str = "steep.onnx") -> None:
    """The first layer adds a thousand, which the second takes away again."""
    rng = np.random.default_rng(0)
    minus = np.concatenate([np.eye(32), -np.eye(32)]).astype(np.float32)
    weights = {"w": rng.standard_normal((64, 64)).astype(np.float32), "b": np.full(64, 1000, np.float32), "m": minus}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["up"], "raise"),
        helper.make_node("Relu", ["up"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "m"], ["down"], "subtract"),
        helper.make_node("Tanh", ["down"], ["y"], "tanh"),
    ]
    graph = helper.make_graph(
        nodes,
        "steep",
        [helper.make_tensor_value_info("x", _FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", _FLOAT, [4, 32])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    _save(graph, path)


def factory() -> None:
    """`my.models:resnet`, its arguments and its weights."""
    Path("my").mkdir()
    Path("my/models.py").write_text(
        "from neurenix import nn\n\n\n"
        "def resnet(width: int) -> nn.Module:\n"
        "    return nn.Sequential(nn.Conv2d(3, width, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1))\n"
    )
    Path("net.json").write_text('{"width": 8}')
    weights = {"0.weight": np.ones((8, 3, 3, 3), np.float32), "0.bias": np.zeros(8, np.float32)}
    Path("weights.safetensors").write_bytes(safetensors.numpy.save(weights))


def _save(graph: onnx.GraphProto, path: str) -> None:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), Path(path))


def pictures() -> None:
    """A folder of arrays to calibrate on."""
    rng = np.random.default_rng(0)
    Path("images").mkdir()
    for at in range(2):
        np.save(f"images/{at}.npy", rng.standard_normal((1, 3, 224, 224)).astype(np.float32))


#: What is made in the folder of a page before it runs.
GIVEN: dict[str, tuple[Callable[[], None], ...]] = {
    "README.md": (classifier,),
    "docs/cli.md": (partial(classifier, "image"), factory, pictures),
    "docs/guides/debugging-accuracy.md": (cancelling,),
    "docs/guides/dynamic-shapes.md": (open_convolution,),
    "docs/guides/from-onnx.md": (partial(classifier, size=64),),
    "docs/guides/from-tensorrt.md": (partial(classifier, size=64),),
    "docs/guides/inference.md": (cells,),
    "docs/guides/precision.md": (partial(classifier, size=64), cancelling),
    "docs/guides/serving.md": (partial(classifier, "image", size=64),),
    "docs/guides/threads.md": (partial(classifier, size=64),),
    "docs/tensorrt-api.md": (open_convolution,),
    "docs/tensorrt.md": (classifier,),
}
