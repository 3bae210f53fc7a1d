"""Keras models with weights that keep signals alive, and what TensorFlow makes of them."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.optional import Lazy

#: TensorFlow is imported when a test runs, and not when tests are collected.
needs_tensorflow = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("tensorflow", "tf2onnx", "keras")),
    reason="needs TensorFlow, Keras and tf2onnx, the extra `tensorflow`",
)
keras: Any = Lazy("keras")
tf: Any = Lazy("tensorflow")


def alive(model: Any, seed: int = 0) -> Any:
    """The model with random weights, scales and statistics."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        kind, shape = weight.path.rsplit("/", 1)[-1], tuple(weight.shape)
        if kind in ("gamma", "moving_variance"):
            array = rng.uniform(0.5, 1.5, shape)
        else:
            array = rng.normal(0, np.sqrt(2 / max(1, np.prod(shape[:-1]))), shape)
        weight.assign(array.astype("float32"))
    return model


def pictures() -> Any:
    """A network over channels-last images, with what convolutional networks have."""
    layers = keras.layers
    x = keras.Input((15, 18, 3), name="image")
    h = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="stem")(x)
    h = layers.Activation("relu6")(layers.BatchNormalization()(h))
    skip = h
    h = layers.DepthwiseConv2D(5, padding="same")(h)
    h = layers.Activation("swish")(layers.BatchNormalization()(h))
    gate = layers.GlobalAveragePooling2D(keepdims=True)(h)
    h = h * layers.Conv2D(8, 1, activation="sigmoid")(gate)
    h = layers.Add()([skip, layers.Conv2D(8, 1)(h)])
    h = layers.MaxPooling2D(3, strides=2, padding="same")(h)
    h = layers.ZeroPadding2D(((0, 1), (0, 1)))(h)
    h = layers.Conv2D(8, 3, groups=4, activation="gelu")(h)
    h = layers.UpSampling2D(2, interpolation="bilinear")(h)
    h = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(h)
    h = layers.AveragePooling2D(2)(h)
    return alive(keras.Model(x, layers.Dense(5, name="logits")(layers.Flatten()(h))))


def image(batch: int = 3) -> np.ndarray:
    """What `pictures` takes."""
    return np.random.default_rng(1).normal(size=(batch, 15, 18, 3)).astype("float32")


def check(source: Any, wanted: dict[str, Any], given: dict[str, Any], bound: float = 1e-5, **more: Any) -> Any:
    """Imports, builds and compares with what TensorFlow gave; gives the engine."""
    network = nx.importers.from_tensorflow(source, **more)
    assert [port.name for port in network.inputs] == list(given)
    engine = nx.optimize(network, {name: np.shape(array) for name, array in given.items()}, verify=False)
    found = engine(given)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        array = np.asarray(array)
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert array.astype(float).std() > 0.1, "nothing of it is alive"
        assert np.abs(found[name].astype(float) - array).max() <= bound * np.abs(array).max(), name
    return engine


def kinds(engine: Any) -> list[str]:
    """The layers that an engine runs, fused ones together."""
    return [line.split()[2] for line in str(engine.report()).splitlines() if " us " in line]
