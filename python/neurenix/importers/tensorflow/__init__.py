"""TensorFlow and Keras models: `from_tensorflow`, through tf2onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neurenix._native import Network

__all__ = ["from_tensorflow"]


def from_tensorflow(
    model: Any,
    *,
    signature: str | None = None,
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[str] | None = None,
) -> Network:
    """Imports a model of TensorFlow's or Keras'.

    `model`: a `keras.Model` (of any backend of Keras), a path of a .keras file, of a SavedModel's folder, of a frozen
    graph (.pb) or of a .tflite file, a `tf.function`, a concrete function, a `tf.compat.v1.GraphDef`, or what
    `tf.saved_model.load` gave.

    Inputs and outputs are called as the model calls them: by the names of a signature, of the arguments of a function,
    of Keras' inputs and output layers, of the nodes of a graph. Outputs without a name are "output", "output_1", ...
    Dimensions that the model leaves open stay so. The first ones of all inputs are one symbol, "batch"; the others are
    called after their input and axis, as in "x.1". `input_shapes` says otherwise for the inputs that it names: integers
    fix a dimension, texts name it, None leaves it open.

    `signature`: which one of a SavedModel or a .tflite file ("serving_default", or the only one). `inputs`: for a
    `tf.function` without an input signature, what to trace it with (`tf.TensorSpec`s or arrays); for a graph, the names
    of the nodes that are its inputs (its placeholders). `outputs`: for a graph, the names of the nodes that are its
    outputs (those that nothing reads).

    Nothing of a file is executed but the arithmetic of TensorFlow's own ops, when constants are folded: files with
    Lambda layers, with classes that are not Keras' own or registered here, and with ops that call Python or open files
    are refused by name.

    Raises `MissingPackageError` where TensorFlow, Keras or tf2onnx is missing, `UnsupportedError` with the ops that
    nothing converts, their nodes and the way out, `FileError` and `FormatError` for files that can't be read,
    `InvalidArgumentError` for names and shapes that the model does not have, and as `from_onnx`.
    """
    from neurenix.importers.tensorflow.sources import Request, import_tensorflow

    return import_tensorflow(model, Request(signature, dict(input_shapes or {}), inputs, outputs))


def network_of(model: Any, shapes: Any = None) -> Network:
    """As `from_tensorflow`; `shapes` is what `optimize_model` is given, and fixes nothing that is open in the model."""
    from neurenix.importers.tensorflow.sources import Request, import_tensorflow

    return import_tensorflow(model, Request(hints=shapes))
