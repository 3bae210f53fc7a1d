"""Layers in TensorFlow's spelling become the layers that have kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import neurenix as nx
from tests.importers.tensorflow.models import alive, check, keras, needs_tensorflow, tf

pytestmark = needs_tensorflow


def ops(engine: Any) -> str:
    """The layers of an engine, as its report lists them."""
    return "\n".join(line.split("[")[0] for line in str(engine.report()).splitlines() if " us " in line)


def test_transformer() -> None:
    layers = keras.layers
    ids = keras.Input((None,), dtype="int32", name="ids")
    h = layers.Embedding(50, 32)(ids)
    h = layers.LayerNormalization(epsilon=1e-6)(h + layers.MultiHeadAttention(4, 8)(h, h))
    wide = layers.Dense(64, activation="gelu")(h)
    model = alive(keras.Model(ids, layers.LayerNormalization(name="y")(h + layers.Dense(32)(wide))))
    given = np.random.default_rng(0).integers(0, 50, (2, 12)).astype("int32")
    engine = check(model, {"y": model(given)}, {"ids": given})
    layers_run = ops(engine)
    assert "Attention" in layers_run and layers_run.count("LayerNormalization") == 2 and "Gelu" in layers_run
    assert "Erf" not in layers_run and "Softmax" not in layers_run


def test_layer_normalization_between_convolutions() -> None:
    layers = keras.layers
    x = h = keras.Input((12, 12, 8), name="x")
    for epsilon in (1e-6, 0.5):
        inner = layers.LayerNormalization(epsilon=epsilon)(layers.DepthwiseConv2D(5, padding="same")(h))
        h = h + layers.Dense(8)(layers.Dense(32, activation="gelu")(inner))
    model = alive(keras.Model(x, layers.Conv2D(4, 1, name="y")(h)))
    given = np.random.default_rng(0).normal(size=(2, 12, 12, 8)).astype("float32")
    assert sum(layer.op == "LayerNormalization" for layer in nx.importers.from_tensorflow(model).layers) == 2
    check(model, {"y": model(given)}, {"x": given})


def test_erfc() -> None:
    function = tf.function(lambda x: tf.math.erfc(x) + tf.math.erfc(-x * 0.5), input_signature=[tf.TensorSpec((9,))])
    x = np.linspace(-3, 3, 9).astype("float32")
    check(function, {"output": tf.math.erfc(x) + tf.math.erfc(-x * 0.5)}, {"x": x})


def test_large_weights_are_as_they_were() -> None:
    layers = keras.layers
    ids = keras.Input((5,), dtype="int32", name="ids")
    h = layers.Dense(600, activation="relu")(layers.Embedding(900, 512)(ids))
    model = alive(keras.Model(ids, layers.Dense(3, name="y")(h)))
    given = np.random.default_rng(0).integers(0, 900, (2, 5)).astype("int32")
    check(model, {"y": model(given)}, {"ids": given})


def test_control_flow() -> None:
    @tf.function(input_signature=[tf.TensorSpec((None, 3), name="x")])
    def function(x: Any) -> Any:
        i = tf.constant(0)
        while i < 3:
            x = x * 1.5 + tf.cast(i, tf.float32)
            i += 1
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: -x)

    for sign in (1, -1):
        x = sign * np.random.default_rng(0).uniform(3, 4, (2, 3)).astype("float32")
        check(function, {"output": function(x)}, {"x": x})


def test_reverse() -> None:
    function = tf.function(lambda x: tf.reverse(x, [0, -1]), input_signature=[tf.TensorSpec((None, 4, 5))])
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype("float32")
    engine = check(function, {"output": x[::-1, :, ::-1]}, {"x": x})
    assert "ReverseSequence" not in ops(engine)


def test_bfloat16_stays_bfloat16() -> None:
    layers = keras.layers
    x = keras.Input((12, 12, 3), name="x")
    policy = {"dtype": "mixed_bfloat16"}
    h = layers.BatchNormalization(**policy)(layers.Conv2D(8, 3, activation="relu", **policy)(x))
    h = layers.LSTM(8, return_sequences=True, **policy)(layers.Reshape((25, 32), **policy)(layers.Flatten()(h[:, :10])))
    model = alive(keras.Model(x, layers.Dense(5, dtype="float32", name="y")(layers.Dense(9, **policy)(h))))
    # Too large for float16.
    given = 1e5 * np.random.default_rng(0).normal(size=(2, 12, 12, 3)).astype("float32")
    dtypes = {str(port.dtype) for layer in nx.importers.from_tensorflow(model).layers for port in layer.outputs}
    assert "bfloat16" in dtypes and "float16" not in dtypes
    check(model, {"y": model(given)}, {"x": given}, 3e-2)
