"""What can't be imported, or would run code, is one error with the name of what is at fault and the way out."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.cli import main
from tests.importers.tensorflow.models import alive, image, keras, needs_tensorflow, pictures, tf

pytestmark = needs_tensorflow


def refused(source: Any, **more: Any) -> nx.Error:
    with pytest.raises(nx.Error) as caught:
        nx.importers.from_tensorflow(source, **more)
    assert caught.value.hint
    return caught.value


def test_an_op_that_nobody_converts() -> None:
    error = refused(tf.function(lambda x: tf.linalg.svd(x)[0]), inputs=[tf.TensorSpec((3, 3))])
    assert isinstance(error, nx.UnsupportedError)
    assert "Svd" in error.message and error.layer == "Svd"


@pytest.mark.parametrize("wrap", ["py_function", "numpy_function"])
def test_calls_of_python(wrap: str, tmp_path: Path) -> None:
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((3,))])
        def call(self, x: Any) -> Any:
            return getattr(tf, wrap)(lambda y: y + 1, [x], tf.float32)

    module = Module()
    tf.saved_model.save(module, tmp_path, signatures=module.call)
    assert "calls Python" in refused(tmp_path).message
    assert "calls Python" in refused(module.call).message


def test_ops_that_touch_files_do_not_run(tmp_path: Path) -> None:
    target = tmp_path / "written"

    class Table(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable([1.0, 2.0, 3.0])

        @tf.function(input_signature=[tf.TensorSpec((3,))])
        def call(self, x: Any) -> Any:
            tf.io.write_file(str(target), "text")
            return x + self.weight

    table = Table()
    tf.saved_model.save(table, tmp_path / "saved", signatures=table.call)
    error = refused(tmp_path / "saved")
    assert "touches files" in error.message and "WriteFile" in error.message
    assert not target.exists()

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (3,), "x")
        size = tf.strings.length(tf.io.read_file(str(tmp_path / "saved" / "saved_model.pb")))
        tf.add(x, tf.cast(size, tf.float32), name="y")
    assert "ReadFile" in refused(graph.as_graph_def()).message


def test_lambda_layers_and_custom_classes_of_files(tmp_path: Path) -> None:
    class Twice(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x * 2

    layers = [keras.layers.Lambda(lambda x: x + 1, name="plus"), Twice(name="twice")]
    for layer, word in zip(layers, ("Lambda", "Twice"), strict=True):
        path = tmp_path / f"{word}.keras"
        keras.Sequential([keras.Input((3,)), layer]).save(path)
        # Keras would open it then; nothing that stands in the file may run even so.
        keras.config.enable_unsafe_deserialization()
        try:
            error = refused(path)
        finally:
            keras.src.backend.common.global_state.set_global_attribute("safe_mode_saving", None)
        assert word in error.message and error.layer == layer.name


def test_files_that_are_damaged(tmp_path: Path) -> None:
    damaged = {"a.keras": b"PK", "b.pb": b"\xff\xff\xff", "c.tflite": b"\0" * 20, "d.tflite": b"\0\0\0\0TFL3"}
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(nx.FormatError):
            nx.importers.from_tensorflow(tmp_path / name)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(nx.FormatError, match="damaged"):
        nx.importers.from_tensorflow(tmp_path / "saved")
    with zipfile.ZipFile(tmp_path / "e.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "module": "keras", "config": {}}))
    with pytest.raises(nx.FormatError, match="Keras can't open"):
        nx.importers.from_tensorflow(tmp_path / "e.keras")
    with pytest.raises(nx.FileError):
        nx.importers.from_tensorflow(tmp_path / "missing.keras")


def test_what_does_not_fit() -> None:
    function = tf.function(lambda x: x + 1)
    assert "no input signature" in refused(function).message
    signed = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec((None, 4))])
    for shapes, text in (({"x": (None, 5)}, "does not fit"), ({"z": (1, 4)}, "no input 'z'")):
        with pytest.raises(nx.InvalidArgumentError, match=text):
            nx.importers.from_tensorflow(signed, input_shapes=shapes)
    texts = tf.function(lambda x: tf.strings.length(x), input_signature=[tf.TensorSpec((3,), tf.string)])
    error = refused(texts)
    assert "string" in error.message and error.tensor == "x"
    with pytest.raises(nx.InvalidArgumentError, match="no model"):
        nx.importers.from_tensorflow(object())


def test_loops_that_were_taken_to_pieces() -> None:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    model = keras.Sequential([keras.Input((5, 6)), keras.layers.LSTM(4)])
    call = tf.function(lambda x: model(x)).get_concrete_function(tf.TensorSpec((None, 5, 6)))
    error = refused(convert_variables_to_constants_v2(call).graph.as_graph_def())
    assert "lower_control_flow=False" in str(error.hint)


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    alive(pictures()).save("model.keras")
    np.save("x.npy", image(1))
    shape = ["--shapes", "image:1x15x18x3"]
    compared = ["--load-inputs", "image:x.npy", "--compare", "tensorflow,onnxruntime"]
    assert main(["run", "model.keras", *shape, *compared]) == 0
    assert main(["export", "model.keras", *shape, "--precision", "fp32", "--verify", "-o", "m.engine"]) == 0
    assert "verified" in capsys.readouterr().out
    assert main(["run", "m.engine", "--load-inputs", "image:x.npy"]) == 0
    arguments = ["--duration", "0", "--iterations", "10", "--warmup", "0"]
    assert main(["bench", "model.keras", *shape, *arguments, "--against", "tensorflow"]) == 0
    assert "tensorflow 2" in capsys.readouterr().out
