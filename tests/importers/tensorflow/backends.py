"""What `test_backends` calls in processes whose Keras has another backend than TensorFlow."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import neurenix as nx
from neurenix.cli import main
from neurenix.importers.tensorflow import keras_files, peer
from neurenix.importers.tensorflow.ports import leaves
from tests.importers.tensorflow.models import alive

BACKEND = keras.backend.backend()
layers: Any = keras.layers
RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    """Random numbers."""
    return RNG.normal(size=shape).astype("float32")


def wanted(model: Any, given: Any) -> list[np.ndarray]:
    """What Keras computes."""
    return [keras.ops.convert_to_numpy(value) for _, value in leaves(model(given, training=False))]


def check() -> None:
    """What can differ from backend to backend."""
    if BACKEND in ("jax", "openvino"):
        check_model()
    check_classes()
    if BACKEND == "torch":
        check_six_inputs()
    if BACKEND == "numpy":
        check_unbuilt_model()
        check_process()


def compare(network: nx.Network, given: dict[str, np.ndarray], arrays: list[np.ndarray]) -> nx.InferenceEngine:
    """Builds a network and compares it with what Keras computed; gives the engine."""
    engine = nx.optimize(network, {name: array.shape for name, array in given.items()}, verify=False)
    found = list(engine(given).values())
    assert len(found) == len(arrays)
    for ours, theirs in zip(found, arrays, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert theirs.std() > 0.1, "nothing of it is alive"
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()
    return engine


def common() -> Any:
    """Images through a convolutional network, tokens through recurrent and attention layers, under names."""
    image, ids = keras.Input((12, 12, 3), name="image"), keras.Input((None,), dtype="int32", name="ids")
    h = layers.BatchNormalization()(layers.Conv2D(8, 3, strides=2, padding="same")(image))
    h = layers.UpSampling2D(2, interpolation="bilinear")(layers.DepthwiseConv2D(3, activation="gelu")(h))
    pixels = layers.Dense(6, name="pixels")(layers.Flatten()(h))
    t = layers.Embedding(20, 16)(ids)
    t = layers.LayerNormalization()(t + layers.MultiHeadAttention(2, 8)(t, t))
    t = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(layers.Dropout(0.5)(t))
    words = layers.Dense(6, name="words")(layers.GRU(8)(t))
    return alive(keras.Model({"image": image, "ids": ids}, {"words": words, "pixels": pixels, "sum": words + pixels}))


def check_model() -> None:
    """A model with dicts of named inputs and outputs, whose recurrent layers stay such."""
    model = common()
    network = nx.importers.from_tensorflow(model)
    assert [(port.name, str(port.dtype), port.shape) for port in network.inputs] == [
        ("ids", "int32", ("batch", "ids.1")),
        ("image", "float32", ("batch", 12, 12, 3)),
    ]
    assert list(network.outputs) == ["pixels", "sum", "words"]
    given = {"ids": RNG.integers(0, 20, (3, 7)).astype("int32"), "image": normal(3, 12, 12, 3)}
    engine = compare(network, given, wanted(model, given))
    kinds = [line.split()[2] for line in str(engine.report()).splitlines() if " us " in line]
    assert sum(kind.startswith(("LSTM", "GRU")) for kind in kinds) == 2, kinds
    assert peer.name_of(model) == "keras"
    call, version = peer.keras_runner(model, given, 1)
    for ours, theirs in zip(engine(given).values(), call(), strict=True):
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()
    assert version == f"{keras.__version__} with {BACKEND}"


class Twice(layers.Layer):  # type: ignore[misc]
    """A layer that only this process knows."""

    def call(self, x: Any) -> Any:
        """Twice the input."""
        return x * 2


class Product(keras.Model):  # type: ignore[misc]
    """A model that does not say what it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers.Dense(3), layers.Dense(3)

    def call(self, x: Any, y: Any) -> Any:
        """What it takes has names."""
        return self.first(x) * self.second(y)


def check_classes() -> None:
    """Where Keras' backend can be traced, classes of the user's are converted; else they are refused by name."""
    x, y = normal(3, 8), normal(3, 8)
    model, product = keras.Sequential([keras.Input((8,), name="v"), layers.Dense(5), Twice(name="twice")]), Product()
    alive(model)
    shapes = {"x": (None, 8), "y": (None, 8)}
    if BACKEND in ("numpy", "openvino"):
        with pytest.raises(nx.UnsupportedError, match="Twice is not Keras' own") as caught:
            nx.importers.from_tensorflow(model)
        assert caught.value.layer == "twice" and "KERAS_BACKEND=tensorflow" in str(caught.value.hint)
        with pytest.raises(nx.UnsupportedError, match="Product is not Keras' own"):
            nx.importers.from_tensorflow(product, input_shapes=shapes)
        return
    if BACKEND == "jax" and importlib.util.find_spec("jax2onnx") is None:
        with pytest.raises(nx.MissingPackageError, match="jax2onnx") as missing:
            nx.importers.from_tensorflow(model)
        assert missing.value.layer == "twice"
        return
    compare(nx.importers.from_tensorflow(model), {"v": x}, wanted(model, x))
    network = nx.importers.from_tensorflow(product, input_shapes=shapes)
    assert [port.shape for port in network.inputs] == [("batch", 8)] * 2
    array = keras.ops.convert_to_numpy(product(x=x, y=y, training=False))
    compare(network, {"x": x, "y": y}, [array])


def check_unbuilt_model() -> None:
    """A model that has no weights before it is called, on the command line and as a file; it is held against Keras."""
    x = normal(3, 8)
    model = keras.Sequential([layers.Dense(16, "gelu"), layers.Dense(5)])
    network = nx.importers.from_tensorflow(model, input_shapes={"inputs": ("rows", 8)})
    assert network.inputs[0].shape == ("rows", 8)
    compare(network, {"inputs": x}, wanted(model, x))
    model.save("model.keras")
    arguments = ["--shapes", "input_layer:2x8", "--precision", "fp32", "--verify", "-o", "m.engine"]
    assert main(["export", "model.keras", *arguments]) == 0


def check_process() -> None:
    """Its errors are ours, nothing is left of it, and it looks for no packages in the working directory."""
    tempfile.tempdir = str(Path("temporary").absolute())
    Path(tempfile.tempdir).mkdir()
    Path("tensorflow.py").write_text("raise SystemExit('code of the working directory')")
    model = keras.Sequential([keras.Input((8,), name="v"), Twice(name="twice")])
    # As if this process did not know that the class is the user's.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras_files, "refused", lambda *args: ())
        with pytest.raises(nx.UnsupportedError, match="the file is not opened") as caught:
            nx.importers.from_tensorflow(model)
        assert caught.value.layer == "twice" and not os.listdir(tempfile.tempdir)
        killed = subprocess.CompletedProcess([], -signal.SIGKILL, "", "")
        patch.setattr(subprocess, "run", lambda *args, **more: killed)
        with pytest.raises(nx.DeviceError) as failed:
            nx.importers.from_tensorflow(model)
        assert failed.value.got == f"signal {signal.SIGKILL:d}" and not os.listdir(tempfile.tempdir)


def check_six_inputs() -> None:
    """Inputs keep their places and names, whatever their number and order."""
    inputs = [keras.Input((4,), name=name) for name in "fbadec"]
    h = inputs[0]
    for other in inputs[1:]:
        h = keras.ops.maximum(h, other) - other
    # A name that PyTorch gives to another tensor.
    model = keras.Model(inputs, [layers.Dense(3, name="sub")(h), layers.Dense(2, name="last")(h - inputs[0])])
    given = {name: normal(3, 4) for name in "fbadec"}
    network = nx.importers.from_tensorflow(alive(model))
    assert [port.name for port in network.inputs] == list(given) and list(network.outputs) == ["sub", "last"]
    compare(network, given, wanted(model, list(given.values())))
