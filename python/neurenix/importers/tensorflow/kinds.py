"""What is of TensorFlow or Keras, told without importing either."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from neurenix.importers.files import TENSORFLOW

#: The files in a SavedModel's folder that hold its graph.
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
#: What the errors of other sources say of these.
NAMES = "a keras.Model, a .keras or .tflite file, a SavedModel folder, a frozen graph (.pb), a tf.function"


def is_instance(model: Any, package: str, *names: str) -> bool:
    """Whether this is an instance of a class of a package, which is not imported to find out."""
    for name in names:
        found: Any = sys.modules.get(package)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and isinstance(model, found):
            return True
    return False


def is_keras(model: Any) -> bool:
    """Whether this is a model of Keras'."""
    return any(is_instance(model, package, "Model") for package in ("keras", "tf_keras"))


def is_path(path: Path) -> bool:
    """Whether a path is that of a model of TensorFlow's or Keras'."""
    return is_saved_model(path) or path.suffix.lower() in TENSORFLOW


def is_saved_model(path: Path) -> bool:
    """Whether a path is a SavedModel's folder."""
    return path.is_dir() and any((path / name).is_file() for name in SAVED_MODEL)


def has_signatures(path: Path) -> bool:
    """Whether a path is that of a model with signatures by name."""
    return is_saved_model(path) or path.suffix.lower() == ".tflite"


def is_function(model: Any) -> bool:
    """Whether this is a `tf.function`, or a concrete function."""
    return is_concrete(model) or is_instance(
        model, "tensorflow", "types.experimental.PolymorphicFunction", "types.experimental.GenericFunction"
    )


def is_concrete(model: Any) -> bool:
    """Whether this is a concrete function."""
    return is_instance(model, "tensorflow", "types.experimental.ConcreteFunction")


def is_graph(model: Any) -> bool:
    """Whether this is a GraphDef."""
    return is_instance(model, "tensorflow", "compat.v1.GraphDef")


def is_loaded(model: Any) -> bool:
    """Whether this is what `tf.saved_model.load` gave, or another object with signatures."""
    return is_instance(model, "tensorflow", "Module", "__internal__.tracking.AutoTrackable") or (
        hasattr(model, "signatures") and type(model).__module__.partition(".")[0] == "tensorflow"
    )


def is_tensorflow(model: Any) -> bool:
    """Whether this is an object of TensorFlow's or Keras'; paths are for `is_path`."""
    return is_keras(model) or is_function(model) or is_graph(model) or is_loaded(model)


def is_source(model: Any) -> bool:
    """Whether this is a path or an object that `from_tensorflow` takes."""
    return is_path(Path(model)) if isinstance(model, (str, os.PathLike)) else is_tensorflow(model)
