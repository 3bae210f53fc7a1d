"""What a graph assigns or prints goes where no output reads it, and is an error of a name where one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.importers.tensorflow.models import alive, keras, needs_tensorflow, tf

pytestmark = needs_tensorflow

X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")


def agree(source: Any, wanted: Any, given: Any = X) -> None:
    engine = nx.optimize(source, {"x": given.shape}, verify=False)
    (found,) = engine({"x": given}).values()
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-5, atol=1e-5)


LAYERS = {
    "lstm": lambda layers: layers.LSTM(3, dropout=0.2, recurrent_dropout=0.1),
    "gru": lambda layers: layers.Bidirectional(layers.GRU(3, dropout=0.2)),
    "simple": lambda layers: layers.SimpleRNN(3, recurrent_dropout=0.2, return_sequences=True),
    "unrolled": lambda layers: layers.LSTM(3, dropout=0.2, unroll=True),
}


def model_of(kind: str) -> Any:
    layers = keras.layers
    return alive(keras.Sequential([keras.Input((5, 4), name="x"), LAYERS[kind](layers)]))


@pytest.mark.parametrize("kind", LAYERS)
def test_seeds_of_dropout(kind: str) -> None:
    model = model_of(kind)
    agree(model, model(X, training=False))


def test_seeds_of_dropout_in_convolutions() -> None:
    model = alive(keras.Sequential([keras.Input((5, 6, 3), name="x"), keras.layers.ConvLSTM1D(2, 3, dropout=0.2)]))
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype("float32")
    agree(model, model(x, training=False), x)


def test_seeds_of_dropout_in_files(tmp_path: Path) -> None:
    model = model_of("lstm")
    model.save(tmp_path / "model.keras")
    model.export(tmp_path / "saved", verbose=False)
    for path in (tmp_path / "model.keras", tmp_path / "saved"):
        agree(path, model(X, training=False))


def test_counters_and_prints() -> None:
    count = tf.Variable(0.0, name="count")

    @tf.function(input_signature=[tf.TensorSpec((2, 5, 4), name="x")])
    def function(x: Any) -> Any:
        tf.print("the shape", tf.shape(x))
        count.assign_add(1.0)
        for _ in tf.range(3):
            count.assign_add(1.0)
            x = x * 1.5
        return x

    agree(function, X * 1.5**3)


def test_prints_to_files_are_refused(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec((3,), name="x")])
    def function(x: Any) -> Any:
        tf.print(x, output_stream=f"file://{tmp_path}/text")
        return x * 2

    with pytest.raises(nx.UnsupportedError, match="touches files, and is not opened: PrintV2"):
        nx.importers.from_tensorflow(function)


def test_a_variable_that_outputs_read_and_calls_change() -> None:
    count = tf.Variable(0.0, name="count")
    counted = tf.function(lambda x: x + count.assign_add(1.0), input_signature=[tf.TensorSpec((3,), name="x")])

    @tf.function(input_signature=[tf.TensorSpec((3,), name="x")])
    def in_loop(x: Any) -> Any:
        for _ in tf.range(3):
            count.assign_add(1.0)
            x = x + count
        return x

    state = keras.Sequential([keras.Input(batch_shape=(1, 5, 4), name="x"), keras.layers.GRU(3, stateful=True)])
    for source, name in ((counted, "count"), (in_loop, "count"), (state, "gru")):
        with pytest.raises(nx.UnsupportedError, match=rf"changes a variable on each call: .*{name}") as caught:
            nx.importers.from_tensorflow(source)
        assert caught.value.hint
