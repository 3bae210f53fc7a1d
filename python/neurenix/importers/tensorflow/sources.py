"""What may be imported, and who reads each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from neurenix import files
from neurenix._native import Network
from neurenix.errors import FileError, InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow import kinds
from neurenix.importers.tensorflow.libraries import tensorflow
from neurenix.importers.tensorflow.request import Request

__all__ = ["Request", "frozen_of", "import_tensorflow", "is_of_another_backend", "is_tflite", "opened_of"]


def import_tensorflow(model: Any, request: Request) -> Network:
    """The network of any model of TensorFlow's or Keras'; raises as `from_tensorflow`."""
    opened = opened_of(model)
    if is_of_another_backend(opened):
        from neurenix.importers.tensorflow.keras_backends import import_other

        return import_other(opened, request)
    if is_tflite(opened):
        from neurenix.importers.tensorflow.tflite import import_tflite

        return import_tflite(opened, request)
    tensorflow("importing a model of TensorFlow's")
    from neurenix.importers.tensorflow.convert import import_frozen

    return import_frozen(_frozen(opened, request), request)


def is_of_another_backend(opened: Any) -> bool:
    """Whether this is a Keras model that does not compute with TensorFlow."""
    if not kinds.is_keras(opened):
        return False
    from neurenix.importers.tensorflow.keras_models import backend_of

    return backend_of(opened) != "tensorflow"


def is_tflite(model: Any) -> bool:
    """Whether this is the path of a .tflite file."""
    return isinstance(model, (str, os.PathLike)) and Path(model).suffix.lower() == ".tflite"


def frozen_of(model: Any, request: Request) -> Any:
    """The graph of a model of TensorFlow's, with constants for variables; raises as `from_tensorflow`."""
    tensorflow("reading a model of TensorFlow's")
    return _frozen(opened_of(model), request)


def opened_of(model: Any) -> Any:
    """Keras' files as models, other paths as Path. Raises as `from_tensorflow`."""
    if not isinstance(model, (str, os.PathLike)):
        if not kinds.is_tensorflow(model):
            raise InvalidArgumentError("this is no model of TensorFlow's", expected=kinds.NAMES, got=_name(model))
        return model
    path = Path(model)
    if not path.exists():
        raise FileError("the model can't be read: No such file or directory", expected=kinds.NAMES, got=str(path))
    if not kinds.is_path(path):
        raise UnsupportedError(
            "the folder is no SavedModel" if path.is_dir() else "files of this kind are not models of TensorFlow's",
            expected=kinds.NAMES,
            got=str(path),
        )
    if path.suffix.lower() == ".keras":
        from neurenix.importers.tensorflow import keras_files

        return keras_files.load(path)
    if not path.is_dir():
        # What is no file is told whether TensorFlow is there or not.
        files.check(path, "the model")
    return path


def _name(model: Any) -> str:
    return model.__name__ if isinstance(model, type) else type(model).__name__


def _frozen(model: Any, request: Request) -> Any:
    from neurenix.importers.tensorflow import functions, graphs, keras_models, saved_model

    if kinds.is_keras(model):
        return keras_models.frozen(model, request)
    if isinstance(model, Path):
        if model.is_dir():
            function, _keeps_its_variables = saved_model.load(model, request.signature)
            return functions.frozen(function)
        return graphs.frozen(graphs.read(model), request)
    if kinds.is_graph(model):
        graph = type(model)()
        graph.CopyFrom(model)
        return graphs.frozen(graph, request)
    if kinds.is_concrete(model):
        return functions.frozen(model)
    if kinds.is_function(model):
        return functions.frozen(functions.traced(model, request))
    return functions.frozen(saved_model.signature(model, request.signature))
