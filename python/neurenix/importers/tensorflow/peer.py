"""TensorFlow as a peer: the same model, run by TensorFlow itself or as the ONNX model that tf2onnx makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow import keras_files, kinds, tflite_peer
from neurenix.importers.tensorflow.libraries import quiet, tensorflow
from neurenix.importers.tensorflow.request import Request
from neurenix.importers.tensorflow.sources import frozen_of, is_of_another_backend, is_tflite, opened_of
from neurenix.log import LOG

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def onnx_bytes(model: Any) -> bytes:
    """The ONNX model that tf2onnx makes of a model, with our names. Raises as `from_tensorflow`."""
    from neurenix.importers.tensorflow import convert

    if is_tflite(model):
        from neurenix.importers.tensorflow.tflite import exported

        return exported(model)
    opened = opened_of(model)
    if is_of_another_backend(opened):
        from neurenix.importers.tensorflow import keras_backends

        return keras_backends.onnx_bytes(opened, Request())
    return bytes(convert.export(frozen_of(opened, Request()), Request()).SerializeToString())


def name_of(model: Any) -> str:
    """Which peer runs a model as it was made: "tensorflow", or "keras" where Keras has another backend."""
    if isinstance(model, (str, os.PathLike)):
        is_other = Path(model).suffix.lower() == ".keras" and keras_files.library().backend.backend() != "tensorflow"
    else:
        is_other = is_of_another_backend(model)
    return "keras" if is_other else "tensorflow"


def keras_runner(model: Any, inputs: Arrays, threads: int) -> tuple[Callable[[], Sequence[Any]], str]:
    """What runs a model in Keras on these inputs, its outputs in our order; and what that is, with versions.

    Raises `UnsupportedError` for what is no Keras model, and where Keras computes with TensorFlow.
    """
    opened = opened_of(model)
    if not kinds.is_keras(opened):
        raise UnsupportedError(
            "Keras can't run a model of this kind", expected="a keras.Model or a .keras file", got=str(model)
        )
    from neurenix.importers.tensorflow import keras_peer

    return keras_peer.runner(opened, inputs, threads)


def runner(model: Any, inputs: Arrays, threads: int) -> tuple[Callable[[], list[Any]], bool]:
    """What runs a model in TensorFlow on these inputs, its outputs in our order; and whether XLA compiled it.

    Variables are constants, as they are for us. A .tflite file is run by its own interpreter.
    """
    if is_tflite(model):
        return tflite_peer.runner(model, inputs, threads), False
    tf = tensorflow("comparing with TensorFlow")
    _limit(tf, threads)
    frozen = frozen_of(model, Request(hints={name: array.shape for name, array in inputs.items()}))
    with quiet(), tf.device("/cpu:0"):
        whole = tf.compat.v1.wrap_function(lambda: tf.compat.v1.import_graph_def(frozen.graph, name=""), [])
        feeds = [whole.graph.as_graph_element(port.tensor) for port in frozen.inputs]
        part = whole.prune(feeds, [whole.graph.as_graph_element(port.tensor) for port in frozen.outputs])
        given = [tf.constant(_array(inputs, port.name)) for port in frozen.inputs]
    compiled = tf.function(lambda *tensors: part(*tensors), jit_compile=True)
    try:
        with quiet():
            compiled(*given)
    except Exception as error:
        LOG.warning("XLA can't compile the model, TensorFlow runs it without: %s", str(error).splitlines()[0])
        return lambda: [value.numpy() for value in part(*given)], False
    return lambda: [value.numpy() for value in compiled(*given)], True


def _array(inputs: Arrays, name: str) -> np.ndarray[Any, Any]:
    if name not in inputs:
        raise InvalidArgumentError("TensorFlow's model has another input", tensor=name, expected=", ".join(inputs))
    return inputs[name]


def _limit(tf: Any, threads: int) -> None:
    """TensorFlow takes the number of threads before it first computes, and never after."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError:
        used = tf.config.threading.get_intra_op_parallelism_threads()
        if used != threads:
            LOG.warning("TensorFlow computes in this process already, with %s threads", used or "all")
