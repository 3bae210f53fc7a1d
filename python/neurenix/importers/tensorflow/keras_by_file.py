"""Keras models by way of a file: what model.save writes is converted where Keras has another backend.

Nothing can be traced where Keras computes with NumPy or OpenVINO. A model that computes with JAX could be; TensorFlow's
converter makes more of it (recurrent layers instead of loops).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from neurenix.errors import Error, FileError, UnsupportedError
from neurenix.importers.tensorflow import keras_calls, keras_files, keras_process
from neurenix.importers.tensorflow.keras_calls import Signature
from neurenix.importers.tensorflow.keras_models import backend_of
from neurenix.importers.tensorflow.libraries import PACKAGES, quiet
from neurenix.importers.tensorflow.request import Request
from neurenix.packages import is_installed, need

T = TypeVar("T")

HINT = (
    "make the model with KERAS_BACKEND=tensorflow, torch or jax, load its weights there (model.save_weights, "
    "model.load_weights), and give that"
)


def converted(model: Any, request: Request, read: Callable[[Path], T]) -> T:
    """What `read` makes of the path of the ONNX model of a model; the file is gone afterwards.

    Raises `UnsupportedError` for layers whose code is not Keras' own, by name, and for what can't be saved,
    `MissingPackageError` where neither TensorFlow nor PyTorch is installed, `FileError` where no file can be written,
    `DeviceError` where the process that converts fails, and what is an error there.
    """
    backend = backend_of(model)
    other = _other_backend(backend)
    asked = keras_calls.signature(model, request)
    keras_calls.build(model, asked)
    try:
        with tempfile.TemporaryDirectory(prefix="neurenix-") as name:
            folder = Path(name)
            _save(model, folder / keras_process.MODEL, backend)
            (folder / keras_process.ORDER).write_text(json.dumps(_order(asked)))
            keras_process.run(folder, other)
            return read(folder / keras_process.ONNX)
    except Error:
        raise
    except OSError as error:
        raise FileError(f"the model can't be written for its conversion: {error}", got=tempfile.gettempdir()) from error


def _other_backend(backend: str) -> str:
    """What Keras is to compute with where the model is converted."""
    for name in ("tensorflow", "torch"):
        if is_installed(name):
            return name
    need("tensorflow", f"importing a Keras model whose backend is {backend}", PACKAGES)
    return "tensorflow"


def _order(asked: Signature) -> dict[str, Any]:
    """What the process is told of a model beside its file."""
    import keras

    settings = {name: getattr(keras.config, name)() for name in keras_process.SETTINGS}
    shapes = {name: [d if isinstance(d, str) else int(d) for d in dims] for name, dims in asked.shapes.items()}
    return {"names": asked.names, "shapes": shapes, "settings": settings}


def _save(model: Any, path: Path, backend: str) -> None:
    """Writes a model; raises `UnsupportedError` for what only this process could read again."""
    way = f"Keras computes with {backend} here, where models are converted from what model.save writes"
    try:
        with quiet():
            model.save(path)
    except OSError:
        raise
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise UnsupportedError(
            f"{way}, and Keras can't save this one: {type(error).__name__}: {lines[0] if lines else ''}",
            got=str(model.name),
            hint=HINT,
        ) from error
    # What is registered here is not known there.
    for name, reason in keras_files.refused(keras_files.config(path), lambda _name: None):
        raise UnsupportedError(f"{way}, and {reason}", layer=name, hint=HINT)
