"""Keras models of other backends than TensorFlow, each by the converter that makes most of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from neurenix._native import Network
from neurenix.errors import Error, MissingPackageError, UnsupportedError
from neurenix.importers.onnx import from_onnx
from neurenix.importers.tensorflow import keras_by_file
from neurenix.importers.tensorflow.keras_models import backend_of
from neurenix.importers.tensorflow.request import Request
from neurenix.log import LOG
from neurenix.packages import is_installed

T = TypeVar("T")
#: What `read` makes of the ONNX model of a model, or of the path of one that is gone afterwards.
Way = Callable[[Any, Request, Callable[[Any], T]], T]


def import_other(model: Any, request: Request) -> Network:
    """The network of a model whose backend is PyTorch, JAX, NumPy or OpenVINO; raises as `from_tensorflow`."""
    return _read(model, request, from_onnx)


def onnx_bytes(model: Any, request: Request) -> bytes:
    """Its ONNX model, with the names that the user knows; raises as `from_tensorflow`."""
    return _read(model, request, lambda made: made.read_bytes() if isinstance(made, Path) else made.SerializeToString())


def _read(model: Any, request: Request, read: Callable[[Any], T]) -> T:
    backend = backend_of(model)
    if backend == "jax":
        return _either(keras_by_file.converted, _by_jax, model, request, read)
    if backend != "torch":
        return keras_by_file.converted(model, request, read)
    if not is_installed("tensorflow"):
        return _by_torch(model, request, read)
    if _is_recurrent(model):
        return _either(keras_by_file.converted, _by_torch, model, request, read)
    return _either(_by_torch, keras_by_file.converted, model, request, read)


def _is_recurrent(model: Any) -> bool:
    """Whether there are layers that PyTorch's and JAX' converters write out or make loops of, step by step."""
    import keras

    return any(isinstance(layer, keras.layers.RNN) for layer in model._flatten_layers())


def _by_torch(model: Any, request: Request, read: Callable[[Any], T]) -> T:
    from neurenix.importers.tensorflow import keras_torch

    return read(keras_torch.onnx_model(model, request))


def _by_jax(model: Any, request: Request, read: Callable[[Any], T]) -> T:
    from neurenix.importers.tensorflow import keras_jax

    return read(keras_jax.onnx_model(model, request))


def _either(first: Way[T], second: Way[T], model: Any, request: Request, read: Callable[[Any], T]) -> T:
    """What the first way gives, or else the second one; the error of the one in this process where both fail.

    A file is no way for classes of the user's, which the other process does not know.
    """
    try:
        return first(model, request, read)
    except Error as error:
        failure = error
    LOG.info("%s is converted in another way, because of %s", model.name, failure.message)
    try:
        return second(model, request, read)
    except Error as error:
        by_file, here = (failure, error) if first is keras_by_file.converted else (error, failure)
        if isinstance(here, (MissingPackageError, UnsupportedError)):
            here.got = f"{here.got or model.name}; by way of a file: {by_file.message}"
            here.layer = here.layer or by_file.layer
        raise here from by_file
