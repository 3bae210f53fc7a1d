"""Keras models whose backend is JAX: through jax2onnx, in this process."""

from __future__ import annotations

from typing import Any

from neurenix.importers.jax.export import converted
from neurenix.importers.tensorflow import keras_calls, keras_models, onnx_names
from neurenix.importers.tensorflow.keras_calls import Signature
from neurenix.importers.tensorflow.request import Request
from neurenix.packages import need


def onnx_model(model: Any, request: Request) -> Any:
    """The ONNX model of a Keras model, with the names that the user knows. JAX makes int32 of int64.

    Raises `MissingPackageError` where jax2onnx is missing, `UnsupportedError` with what it can't convert, and as
    `keras_calls.signature`.
    """
    need("jax2onnx", "converting a Keras model by JAX", ("jax2onnx", "onnx"))
    asked = keras_calls.signature(model, request).fixed(request)
    keras_calls.build(model, asked)
    call = pure(keras_calls.whole(model, asked.structure))
    outputs = keras_models.names_of_outputs(model, _shapes(call, asked))
    found = converted(call, _specs(asked))
    graph = found.graph
    names = dict(zip((port.name for port in graph.input), asked.names, strict=True))
    names |= dict(zip((port.name for port in graph.output), outputs, strict=True))
    onnx_names.rename(graph, names)
    onnx_names.name_dims(graph, asked.shapes)
    return found


def _shapes(call: Any, asked: Signature) -> Any:
    """What the function gives, as shapes."""
    import jax

    try:
        return jax.eval_shape(call, *asked.examples(jax.ShapeDtypeStruct))
    except Exception as error:
        raise asked.refusal(error) from error


def _specs(asked: Signature) -> list[Any]:
    """What jax2onnx traces the function with: JAX's names of open dimensions may have no points."""
    import jax

    symbols: dict[str, str] = {}
    found = []
    for name, dtype in zip(asked.names, asked.dtypes, strict=True):
        dims = [symbols.setdefault(d, f"d{len(symbols)}") if isinstance(d, str) else d for d in asked.shapes[name]]
        found.append(jax.ShapeDtypeStruct(tuple(dims), jax.dtypes.canonicalize_dtype(dtype)))
    return found


def pure(call: Any) -> Any:
    """A function, whose variables keep their values: what a layer assigns while it is traced would stay in them."""
    import keras

    def stateless(*tensors: Any) -> Any:
        with keras.StatelessScope():
            return call(*tensors)

    return stateless
