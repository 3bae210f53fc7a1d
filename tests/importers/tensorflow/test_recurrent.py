"""Keras' recurrent layers become recurrent layers, whatever is masked; a loop that is none of them stays one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.importers.tensorflow.models import alive, check, keras, needs_tensorflow, tf

pytestmark = needs_tensorflow

STEPS, WIDTH, UNITS = 9, 6, 7
LAYERS = {"GRU": "GRU", "LSTM": "LSTM", "SimpleRNN": "RNN"}
MASKED = [
    ("LSTM", {}),
    ("LSTM", {"return_sequences": True, "return_state": True}),
    ("LSTM", {"return_state": True, "zero_output_for_mask": True}),
    ("GRU", {"return_sequences": True}),
    ("GRU", {"return_sequences": True, "go_backwards": True}),
    ("GRU", {"reset_after": False, "recurrent_activation": "hard_sigmoid", "implementation": 1}),
    ("SimpleRNN", {"return_state": True}),
    ("SimpleRNN", {"return_sequences": True, "zero_output_for_mask": True}),
]


def calm(model: Any) -> Any:
    """The model with weights that let no state grow from step to step."""
    alive(model)
    for weight in model.weights:
        weight.assign(weight * 0.5)
    return model


def mask(rng: np.random.Generator) -> np.ndarray:
    """What is left of four sequences: all, nothing, the first steps, and any others."""
    left = rng.random((4, STEPS)) < 0.6
    left[0], left[1], left[2] = True, False, np.arange(STEPS) < STEPS // 3
    return left


def masked(rng: np.random.Generator) -> np.ndarray:
    """Items that are zero where they are masked, as Masking has it."""
    return rng.normal(size=(4, STEPS, WIDTH)).astype("float32") * mask(rng)[..., None]


def ops(source: Any) -> list[str]:
    """The ops of the network of a model."""
    return [layer.op for layer in nx.importers.from_tensorflow(source).layers]


def compare(model: Any, *given: np.ndarray, bound: float = 1e-5) -> tuple[Any, list[str]]:
    """The engine of a model after a comparison with TensorFlow, and the ops of its network."""
    network = nx.importers.from_tensorflow(model)
    found = model(list(given) if len(given) > 1 else given[0])
    wanted = dict(zip(network.outputs, tf.nest.flatten(found), strict=True))
    names = [one.name for one in model.inputs]
    engine = check(model, wanted, dict(zip(names, given, strict=True)), bound)
    return engine, [layer.op for layer in network.layers]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("GRU", {}),
        ("GRU", {"return_sequences": True, "activation": "relu"}),
        ("GRU", {"go_backwards": True, "return_sequences": True}),
        ("GRU", {"use_bias": False, "recurrent_activation": "tanh"}),
        ("GRU", {"reset_after": False}),
        ("GRU", {"reset_after": False, "implementation": 1, "use_bias": False}),
        ("GRU", {"implementation": 1, "recurrent_activation": "hard_sigmoid", "return_state": True}),
        ("GRU", {"activation": "elu", "recurrent_activation": "hard_sigmoid"}),
        ("LSTM", {"return_state": True}),
        ("LSTM", {"implementation": 1, "recurrent_activation": "hard_sigmoid"}),
        ("LSTM", {"activation": "linear"}),
        ("SimpleRNN", {"return_sequences": True, "return_state": True}),
        ("SimpleRNN", {"activation": "linear", "go_backwards": True}),
    ],
    ids=str,
)
def test_layers(kind: str, options: dict[str, Any]) -> None:
    x = keras.Input((None, WIDTH), name="x")
    model = calm(keras.Model(x, getattr(keras.layers, kind)(UNITS, **options)(x)))
    _, found = compare(model, np.random.default_rng(0).normal(size=(2, STEPS, WIDTH)).astype("float32"))
    assert LAYERS[kind] in found and "Loop" not in found


@pytest.mark.parametrize("kind", LAYERS)
def test_shapes_that_are_known(kind: str) -> None:
    x = keras.Input((STEPS, WIDTH), batch_size=2, name="x")
    model = calm(keras.Model(x, getattr(keras.layers, kind)(UNITS, return_sequences=True)(x)))
    _, found = compare(model, np.random.default_rng(0).normal(size=(2, STEPS, WIDTH)).astype("float32"))
    assert LAYERS[kind] in found and "Loop" not in found


@pytest.mark.parametrize(("kind", "options"), MASKED, ids=str)
def test_masks(kind: str, options: dict[str, Any]) -> None:
    x = keras.Input((None, WIDTH), name="x")
    model = calm(keras.Model(x, getattr(keras.layers, kind)(UNITS, **options)(keras.layers.Masking()(x))))
    rng = np.random.default_rng(0)
    engine, found = compare(model, masked(rng))
    assert LAYERS[kind] in found and "Loop" not in found
    for _ in range(4):
        given = masked(rng)
        wanted = tf.nest.flatten(model(given))
        for array, want in zip(engine({"x": given}).values(), wanted, strict=True):
            np.testing.assert_allclose(array, want, atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
def test_embeddings_that_mask(kind: str) -> None:
    layers, rng = keras.layers, np.random.default_rng(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    h = layers.Embedding(20, WIDTH, mask_zero=True)(ids)
    h = layers.Bidirectional(getattr(layers, kind)(UNITS, return_sequences=True))(h)
    model = alive(keras.Model(ids, layers.Dense(3)(getattr(layers, kind)(UNITS)(h))))
    _, found = compare(model, (rng.integers(1, 20, (4, STEPS)) * mask(rng)).astype("int32"))
    assert found.count(LAYERS[kind]) == 3 and "Loop" not in found


@pytest.mark.parametrize("kind", LAYERS)
def test_mixed_precision_under_masks(kind: str) -> None:
    x = keras.Input((None, WIDTH), name="x")
    layer = getattr(keras.layers, kind)(UNITS, return_sequences=True, dtype="mixed_float16")
    model = calm(keras.Model(x, layer(keras.layers.Masking()(x))))
    _, found = compare(model, masked(np.random.default_rng(0)), bound=1e-2)
    assert LAYERS[kind] in found and "Loop" not in found


@pytest.mark.parametrize("options", [{"return_sequences": True}, {}, {"zero_output_for_mask": True}], ids=str)
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_initial_states_under_masks(kind: str, options: dict[str, Any]) -> None:
    x = keras.Input((None, WIDTH), name="x")
    states = [keras.Input((UNITS,), name=f"state{i}") for i in range(2 if kind == "LSTM" else 1)]
    # Keras itself takes no mask from x beside initial states.
    left = keras.ops.any(keras.ops.not_equal(x, 0), axis=-1)
    layer = getattr(keras.layers, kind)(UNITS, return_state=True, **options)
    model = calm(keras.Model([x, *states], layer(x, mask=left, initial_state=states)))
    rng = np.random.default_rng(0)
    _, found = compare(model, masked(rng), *(rng.normal(size=(4, UNITS)).astype("float32") for _ in states))
    assert kind in found and "CumSum" in found and "Loop" not in found


@pytest.mark.parametrize(
    "layer",
    [
        lambda layers: layers.RNN([layers.GRUCell(UNITS), layers.LSTMCell(UNITS)]),
        lambda layers: layers.GRU(UNITS, activation="gelu"),
        lambda layers: layers.LSTM(UNITS, recurrent_activation="silu"),
    ],
    ids=["stacked cells", "gelu", "silu"],
)
def test_cells_that_onnx_lacks_stay_loops(layer: Callable[[Any], Any]) -> None:
    x = keras.Input((None, WIDTH), name="x")
    model = alive(keras.Model(x, layer(keras.layers)(keras.layers.Masking()(x))))
    assert "Loop" in compare(model, masked(np.random.default_rng(0)))[1]


def test_a_mask_for_all_sequences_stays_a_loop() -> None:
    layer, left = keras.layers.GRU(UNITS), np.random.default_rng(3).random((1, STEPS)) < 0.5
    function = tf.function(
        lambda x: layer(x, mask=tf.constant(left)), input_signature=[tf.TensorSpec((2, STEPS, WIDTH))]
    )
    x = np.random.default_rng(0).normal(size=(2, STEPS, WIDTH)).astype("float32")
    wanted = function(x)
    assert "Loop" in ops(function)
    check(function, {"output": wanted}, {"x": x})


@pytest.mark.parametrize(
    ("form", "looped"),
    [("whole", False), *((form, True) for form in ("ends early", "begins late", "weights change", "longer list"))],
)
def test_loops_by_hand(form: str, looped: bool) -> None:
    rng = np.random.default_rng(0)
    kernel, recurrent = (rng.normal(size=(n, UNITS)).astype("float32") * 0.4 for n in (WIDTH, UNITS))

    def function(x: Any) -> Any:
        first, end = int(form == "begins late"), 4 if form == "ends early" else STEPS
        items = tf.TensorArray(tf.float32, STEPS).unstack(tf.transpose(x, [1, 0, 2]))
        written = tf.TensorArray(tf.float32, STEPS + int(form == "longer list"), element_shape=(2, UNITS))

        def step(time: Any, written: Any, h: Any, weights: Any) -> Any:
            h = tf.tanh(tf.matmul(items.read(time), kernel) + tf.matmul(h, weights))
            return time + 1, written.write(time, h), h, weights * 0.9 if form == "weights change" else weights

        given = [tf.constant(first), written, tf.zeros((2, UNITS)), tf.constant(recurrent)]
        _, written, h, _ = tf.while_loop(lambda time, *_: time < end, step, given)
        return written.stack() + h if form == "whole" else h

    given = tf.function(function, input_signature=[tf.TensorSpec((2, STEPS, WIDTH), name="x")])
    x = rng.normal(size=(2, STEPS, WIDTH)).astype("float32")
    assert ("Loop" in ops(given)) is looped
    check(given, {"output": given(x)}, {"x": x})
