"""Keras itself as a peer, where it computes with something else than TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow import keras_calls
from neurenix.importers.tensorflow.keras_calls import Signature
from neurenix.importers.tensorflow.keras_models import backend_of
from neurenix.importers.tensorflow.request import Request

Call = Callable[[], Sequence[Any]]


def runner(model: Any, inputs: Mapping[str, np.ndarray[Any, Any]], threads: int) -> tuple[Call, str]:
    """What runs a Keras model on these inputs, its outputs in our order; and Keras' version, with that of its backend.

    JAX compiles the model with its weights as constants, OpenVINO compiles each op in each call. Only PyTorch can be
    told the number of threads.

    Raises `UnsupportedError` where TensorFlow is the backend, and `InvalidArgumentError` for inputs that are missing.
    """
    backend = backend_of(model)
    if backend not in _MAKERS:
        raise UnsupportedError(
            f"Keras computes with {backend} here, which is a peer of its own", hint=f"compare with it: {backend}"
        )
    import keras

    asked = keras_calls.signature(model, Request(hints={name: array.shape for name, array in inputs.items()}))
    for name in asked.names:
        if name not in inputs:
            raise InvalidArgumentError("Keras' model has another input", tensor=name, expected=", ".join(inputs))
    call = _MAKERS[backend](model, asked, [inputs[name] for name in asked.names], threads)
    return call, f"{keras.__version__} with {backend}"


def _called(model: Any, asked: Signature, given: list[Any], threads: int) -> Call:
    import keras

    # OpenVINO computes in float32 so; its compiled model (predict) takes bfloat16 on processors that have it.
    call = keras_calls.function(model, asked.structure)
    return lambda: [keras.ops.convert_to_numpy(value) for value in call(*given)]


def _jax(model: Any, asked: Signature, given: list[Any], threads: int) -> Call:
    import jax

    from neurenix.importers.tensorflow.keras_jax import pure

    keras_calls.build(model, asked)
    call = jax.jit(pure(keras_calls.function(model, asked.structure)))
    tensors = [jax.numpy.asarray(array) for array in given]
    return lambda: [np.asarray(value) for value in call(*tensors)]


def _torch(model: Any, asked: Signature, given: list[Any], threads: int) -> Call:
    import keras
    import torch

    torch.set_num_threads(threads)
    call = keras_calls.function(model, asked.structure)
    tensors = [keras.ops.convert_to_tensor(array) for array in given]

    def run() -> Sequence[Any]:
        with torch.inference_mode():
            return call(*tensors)

    return run


_MAKERS: dict[str, Callable[[Any, Signature, list[Any], int], Call]] = {
    "jax": _jax,
    "numpy": _called,
    "openvino": _called,
    "torch": _torch,
}
