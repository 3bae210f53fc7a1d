"""Everything that `from_tensorflow` takes gives what TensorFlow computes, under the user's names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests import two_at_once
from tests.importers.tensorflow.models import alive, check, image, keras, kinds, needs_tensorflow, pictures, tf

pytestmark = needs_tensorflow


@pytest.fixture(scope="module")
def model() -> Any:
    return pictures()


@pytest.fixture(scope="module")
def saved(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as file.keras, as the folder of a SavedModel, and frozen."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    folder = tmp_path_factory.mktemp("models")
    model.save(folder / "model.keras")
    model.export(folder / "saved", verbose=False)
    call = tf.function(lambda image: model(image, training=False))
    concrete = call.get_concrete_function(tf.TensorSpec((None, 15, 18, 3), name="image"))
    graph = convert_variables_to_constants_v2(concrete).graph.as_graph_def()
    (folder / "frozen.pb").write_bytes(graph.SerializeToString())
    return folder


@pytest.mark.parametrize(
    ("file", "output"),
    [("model.keras", "logits"), ("saved", "output_0"), ("frozen.pb", "Identity")],
)
def test_files(model: Any, saved: Path, file: str, output: str) -> None:
    x = image()
    check(saved / file, {output: model(x)}, {"image": x})
    engine = nx.optimize(saved / file, {"image": ((1, 15, 18, 3), (2, 15, 18, 3), (4, 15, 18, 3))})
    assert engine.inputs[0].shape == ("batch", 15, 18, 3)
    for batch in (1, 4):
        x = image(batch)
        assert np.abs(engine(x) - model(x)).max() <= 1e-5 * np.abs(model(x)).max()


def test_layout_stays_channels_last(model: Any) -> None:
    x = image(1)
    engine = check(model, {"logits": model(x)}, {"image": x})
    found = kinds(engine)
    convolutions = [i for i, kind in enumerate(found) if kind.startswith("Conv")]
    assert len(convolutions) >= 6
    assert "Transpose" not in found[convolutions[0] : convolutions[-1]]


def test_objects(model: Any, saved: Path) -> None:
    x = image()
    loaded = tf.saved_model.load(saved / "saved")
    check(loaded, {"output_0": model(x)}, {"image": x})
    check(loaded.signatures["serving_default"], {"output_0": model(x)}, {"image": x})
    graph = tf.compat.v1.GraphDef.FromString((saved / "frozen.pb").read_bytes())
    check(graph, {"Identity": model(x)}, {"image": x}, inputs=["image"], outputs=["Identity"])
    check(graph, {"Identity": model(x)}, {"image": x}, input_shapes={"image": (3, 15, 18, 3)})


def test_functions_have_the_names_of_their_arguments() -> None:
    function = tf.function(lambda x, y: {"sum": x + y, "parts": [x * 2, y * 3]})
    x, y = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    wanted = {"parts": x * 2, "parts_1": y * 3, "sum": x + y}
    spec = tf.TensorSpec((None, 3))
    check(function, wanted, {"x": x, "y": y}, inputs=[spec, spec])
    check(function, wanted, {"x": x, "y": y}, input_shapes={"x": ("rows", 3), "y": ("rows", 3)})
    check(function.get_concrete_function(spec, spec), wanted, {"x": x, "y": y})
    engine = nx.optimize(function, {"x": x.shape, "y": y.shape})
    assert np.array_equal(engine({"x": x, "y": y})["sum"], x + y)


def test_inputs_whose_first_dimensions_differ() -> None:
    function = tf.function(
        lambda a, b: a @ tf.transpose(b), input_signature=[tf.TensorSpec((None, 5)), tf.TensorSpec((None, 5))]
    )
    a, b = (np.random.default_rng(n).normal(size=(n, 5)).astype("float32") for n in (3, 7))
    engine = nx.optimize(function, {"a": a.shape, "b": b.shape})
    assert np.allclose(engine({"a": a, "b": b})["output"], a @ b.T, atol=1e-5)


def test_several_inputs_and_outputs_of_keras() -> None:
    layers = keras.layers
    a, b = keras.Input((4,), name="a"), keras.Input((4,), dtype="int32", name="b")
    total = a + keras.ops.cast(b, "float32")
    model = alive(keras.Model({"a": a, "b": b}, {"t": layers.Dense(3)(total), "s": total * 2}))
    given = {"a": image(1)[:1, 0, :4, 0], "b": np.array([[1, -2, 3, 4]], "int32")}
    wanted = model(given)
    check(model, {"s": wanted["s"], "t": wanted["t"]}, given)


def test_subclassed_models_say_what_they_take() -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (
                keras.layers.Dense(3, kernel_initializer=keras.initializers.RandomNormal(0.0, 1.0, seed))
                for seed in (1, 2)
            )

        def call(self, x: Any, y: Any) -> Any:
            return self.first(x) * self.second(y)

    model = Model()
    given = {name: np.random.default_rng(i).normal(size=(2, 4)).astype("float32") for i, name in enumerate("xy")}
    check(model, {"output": model(**given)}, given, input_shapes={"x": (None, 4), "y": (None, 4)})
    engine = nx.optimize(model, {"x": (2, 4), "y": (2, 4)})
    assert np.allclose(engine(given)["output"], model(**given), atol=1e-5)
    with pytest.raises(nx.InvalidArgumentError, match="does not say what it takes"):
        nx.importers.from_tensorflow(model)


def test_subclassed_models_that_take_dicts_and_lists() -> None:
    class Model(keras.Model):
        def __init__(self, call: Any) -> None:
            super().__init__()
            self.function = call
            self.first = keras.layers.Dense(3, kernel_initializer=keras.initializers.RandomNormal(0.0, 1.0, 1))

        def call(self, inputs: Any) -> Any:
            return self.function(self, inputs)

    rng = np.random.default_rng(0)
    x = {"u": rng.normal(size=(2, 4)).astype("float32"), "v": rng.normal(size=(2, 3)).astype("float32")}
    shapes = {name: (None, *array.shape[1:]) for name, array in x.items()}
    for called in (True, False):
        model = Model(lambda model, inputs: model.first(inputs["u"]) * inputs["v"])
        if called:
            model(x)
        network = nx.importers.from_tensorflow(model, input_shapes=shapes)
        (found,) = nx.optimize(network, {name: array.shape for name, array in x.items()}, verify=False)(x).values()
        np.testing.assert_allclose(found, model(x), atol=1e-5)
    listed = Model(lambda model, inputs: model.first(inputs[0]) * inputs[1])
    check(listed, {"output": listed(list(x.values()))}, x, input_shapes=shapes)
    with pytest.raises(nx.InvalidArgumentError, match="called with other inputs"):
        nx.importers.from_tensorflow(listed, input_shapes={"u": (None, 4)})
    with pytest.raises(nx.InvalidArgumentError, match=r"incompatible shapes|Dimensions must be equal") as caught:
        nx.importers.from_tensorflow(listed, input_shapes={"u": (2, 4), "v": (2, 5)})
    assert "model.export" in str(caught.value.hint)


def test_models_that_only_a_call_builds() -> None:
    class Ids(keras.Model):
        def call(self, ids: Any) -> Any:
            return ids // 2 + 1

    ids = np.array([[1, 20_000_001]], "int32")
    engine = nx.optimize(Ids(), {"ids": ids}, verify=False)
    (found,) = engine({"ids": ids}).values()
    np.testing.assert_array_equal(found, ids // 2 + 1)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    model = keras.Sequential([keras.layers.Dense(3)])
    engine = nx.optimize(model, {"x": (2, 4)}, verify=False)
    (found,) = engine({"x": x}).values()
    np.testing.assert_allclose(found, model(x), atol=1e-5)


def test_signatures(tmp_path: Path) -> None:
    class Two(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable([1.0, 2.0, 3.0])

        @tf.function(input_signature=[tf.TensorSpec((3,), name="x")])
        def add(self, x: Any) -> Any:
            return {"sum": x + self.weight}

        @tf.function(input_signature=[tf.TensorSpec((3,), name="x")])
        def multiply(self, x: Any) -> Any:
            return {"product": x * self.weight}

    two, x = Two(), np.array([1, 4, 5], "float32")
    tf.saved_model.save(two, tmp_path, signatures={"add": two.add, "multiply": two.multiply})
    check(tmp_path, {"sum": x + np.array([1, 2, 3], "float32")}, {"x": x}, signature="add")
    check(tmp_path, {"product": x * np.array([1, 2, 3], "float32")}, {"x": x}, signature="multiply")
    with pytest.raises(nx.InvalidArgumentError, match="several signatures") as caught:
        nx.importers.from_tensorflow(tmp_path)
    assert caught.value.expected == "add, multiply"
    with pytest.raises(nx.InvalidArgumentError, match="no signature 'ad'") as caught:
        nx.importers.from_tensorflow(tmp_path, signature="ad")
    assert "'add'" in str(caught.value)


Finished = Callable[[str], "subprocess.CompletedProcess[str]"]


def beside(first: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process that imports one of PyTorch and TensorFlow before the other, and uses both."""
    second = {"torch": "tensorflow", "tensorflow": "torch"}[first]
    code = f"""
import {first}, {second}, numpy as np
import tensorflow as tf, torch, neurenix as nx
x = np.ones((2, 3), "float32")
given = {{"x": x.shape}}
theirs = nx.optimize(tf.function(lambda x: tf.nn.softmax(x) * 3), given)
ours = nx.optimize(torch.nn.Linear(3, 3), {{"input": x.shape}})
assert np.allclose(theirs(x), 1) and ours(x).shape == (2, 3)
assert np.allclose(tf.linalg.matmul(x, x.T), 3) and torch.ones(3, 3).matmul(torch.ones(3)).sum() == 9
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def finished(request: pytest.FixtureRequest) -> Iterator[Finished]:
    """What became of the process that imports this one first."""
    pytest.importorskip("torch")
    with two_at_once.started(request, "first", beside) as finished:
        yield finished


@pytest.mark.parametrize("first", ["torch", "tensorflow"])
def test_beside_torch_in_either_order(first: str, finished: Finished) -> None:
    done = finished(first)
    assert done.returncode == 0, done.stderr


def test_keras_by_torch_without_tensorflow(model: Any, saved: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    x = image()
    np.save(tmp_path / "x.npy", x)
    code = f"""
import sys
sys.modules["tensorflow"] = None
import os
os.environ["KERAS_BACKEND"] = "torch"
import numpy as np, neurenix as nx
network = nx.importers.from_tensorflow({str(saved / "model.keras")!r})
assert [port.shape for port in network.inputs] == [("batch", 15, 18, 3)], network.inputs
engine = nx.optimize(network, {{"image": (3, 15, 18, 3)}})
np.save({str(tmp_path / "y.npy")!r}, engine({{"image": np.load({str(tmp_path / "x.npy")!r})}})["logits"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    wanted = np.asarray(model(x))
    assert np.abs(np.load(tmp_path / "y.npy") - wanted).max() <= 1e-4 * np.abs(wanted).max()
