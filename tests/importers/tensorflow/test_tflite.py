"""TensorFlow Lite's files give what its own interpreter computes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.cli import main
from tests.importers.tensorflow.models import alive, keras, needs_tensorflow, tf

pytestmark = [
    needs_tensorflow,
    pytest.mark.skipif(importlib.util.find_spec("ai_edge_litert") is None, reason="needs ai-edge-litert"),
]


def pictures(batch: int | None) -> Any:
    layers = keras.layers
    x = keras.Input((24, 24, 3), batch_size=batch, name="image")
    h = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu6")(x)
    h = layers.Activation("relu")(layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(h)))
    h = layers.MaxPooling2D()(layers.Add()([h, layers.Conv2D(16, 1)(h)]))
    return alive(keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h))))


def sequence(kind: str) -> Any:
    layers = keras.layers
    x = h = keras.Input((12, 16), batch_size=1, name="x")
    if kind == "lstm":
        return alive(keras.Model(x, layers.Dense(3)(layers.LSTM(8, return_sequences=True)(h))))
    h = layers.LayerNormalization()(h + layers.MultiHeadAttention(4, 4)(h, h))
    return alive(keras.Model(x, layers.Dense(16, activation="gelu")(h)))


def converted(model: Any, how: str) -> bytes:
    rng = np.random.default_rng(0)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if how != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if how in ("int8", "full int8"):
        converter.representative_dataset = lambda: ([rng.random((1, 24, 24, 3), "float32")] for _ in range(10))
    if how == "full int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def given(port: Any) -> np.ndarray:
    rng = np.random.default_rng(3)
    shape = [2 if isinstance(size, str) else size for size in port.shape]
    if str(port.dtype) == "float32":
        return rng.random(shape, "float32")
    return rng.integers(-128, 127, shape).astype(str(port.dtype))


@pytest.mark.parametrize(
    ("make", "how"),
    [
        (lambda: pictures(1), "float"),
        (lambda: pictures(None), "float"),
        (lambda: pictures(1), "dynamic range"),
        (lambda: pictures(1), "int8"),
        (lambda: pictures(1), "full int8"),
        (lambda: sequence("lstm"), "float"),
        (lambda: sequence("transformer"), "float"),
    ],
    ids=["float", "open batch", "dynamic range", "int8", "full int8", "lstm", "transformer"],
)
def test_files(make: Any, how: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(converted(make(), how))
    network = nx.importers.from_tensorflow(path)
    inputs = {port.name: given(port) for port in network.inputs}
    engine = nx.optimize(path, {name: array.shape for name, array in inputs.items()})
    from ai_edge_litert.interpreter import Interpreter

    wanted = Interpreter(str(path)).get_signature_runner()(**inputs)
    assert [port.dtype for port in engine.outputs] == [array.dtype for array in wanted.values()]
    for name, found in engine(inputs).items():
        away = np.abs(found.astype(float) - wanted[name])
        assert wanted[name].astype(float).std() > 0.1
        if how == "full int8":
            assert away.max() <= 1 and np.mean(away > 0) <= 0.01
        else:
            # With weights of 8 bits alone the interpreter rounds activations too, which we do not.
            assert away.max() <= (2e-2 if how == "dynamic range" else 1e-4) * np.abs(wanted[name]).max()
    if how == "full int8":
        assert "int8" in str(engine.report())


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda x: tf.image.resize(tf.reshape(x, (1, 5, 6, 2)), (7, 3), "nearest"), "float32"),
        (lambda x: tf.image.resize(tf.reshape(x, (1, 5, 6, 2)), (7, 3)), "float32"),
        (lambda x: tf.one_hot(x - 5, 4), "int32"),
        (lambda x: tf.math.unsorted_segment_sum(x, x % 4 - 1, 3), "int32"),
    ],
    ids=["nearest", "bilinear", "one hot", "segments"],
)
def test_values(make: Any, dtype: str, tmp_path: Path) -> None:
    function = tf.function(make, input_signature=[tf.TensorSpec((60,), dtype, name="x")], autograph=False)
    path, x = tmp_path / "model.tflite", np.arange(60).astype(dtype)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function)
    path.write_bytes(converter.convert())
    found = nx.optimize(path, {"x": x.shape})(x)
    assert np.array_equal(found, function(x)) or np.allclose(found, function(x), 1e-6)


def test_signatures(tmp_path: Path) -> None:
    class Two(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((3,), name="x")])
        def add(self, x: Any) -> Any:
            return {"sum": x + 2}

        @tf.function(input_signature=[tf.TensorSpec((4,), name="z")])
        def multiply(self, z: Any) -> Any:
            return {"product": z * 3}

    two, path = Two(), tmp_path / "two.tflite"
    tf.saved_model.save(two, tmp_path / "two", signatures={"add": two.add, "multiply": two.multiply})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "two"), signature_keys=["add", "multiply"])
    path.write_bytes(converter.convert())
    network = nx.importers.from_tensorflow(path, signature="multiply")
    assert [port.name for port in network.inputs] == ["z"] and list(network.outputs) == ["product"]
    assert np.array_equal(nx.optimize(network)(np.ones(4, "float32")), np.full(4, 3, "float32"))
    assert list(nx.importers.from_tensorflow(path, signature="add").outputs) == ["sum"]
    with pytest.raises(nx.InvalidArgumentError, match="several signatures"):
        nx.importers.from_tensorflow(path)
    for source in (path, tmp_path / "two"):
        np.save(tmp_path / "z.npy", np.arange(4, dtype="float32"))
        given = ["--load-inputs", f"z:{tmp_path / 'z.npy'}", "--save-outputs", str(tmp_path / "out.npz")]
        assert main(["run", str(source), "--signature", "multiply", *given]) == 0
        with np.load(tmp_path / "out.npz") as found:
            assert np.array_equal(found["product"], np.arange(4) * 3)


def test_a_signature_belongs_to_tensorflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for model in (str(tmp_path / "a.onnx"), "torch.nn:Identity"):
        assert main(["run", model, "--signature", "serve"]) == 1
        assert "--signature belongs to models of TensorFlow's" in capsys.readouterr().err
