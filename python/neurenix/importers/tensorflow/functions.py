"""Concrete functions: their names and shapes, and the graph with their variables as constants."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow import freezing
from neurenix.importers.tensorflow.libraries import quiet, tensorflow
from neurenix.importers.tensorflow.ports import Port, leaves, output_names, unique
from neurenix.importers.tensorflow.request import Request


@dataclass
class Frozen:
    """A graph without variables, what its inputs and outputs are called, and the shapes of its inputs."""

    graph: Any
    inputs: list[Port]
    outputs: list[Port]
    shapes: dict[str, list[int | None] | None]
    name: str = "tensorflow"

    def shape(self, port: Port) -> list[int | None] | None:
        """The shape of an input; None where not even the number of dimensions is known."""
        return self.shapes[port.tensor]


def traced(function: Any, request: Request) -> Any:
    """The concrete function of a `tf.function`.

    Raises `InvalidArgumentError` where it has no input signature and nothing says what to trace it with, or it fails.
    """
    tf = tensorflow("importing a tf.function")
    signed = function.input_signature is not None
    if request.inputs is None and not signed and not request.is_said():
        raise InvalidArgumentError(
            "the function has no input signature",
            hint="give inputs=[tf.TensorSpec((None, 3), tf.float32)], or input_shapes={'x': (None, 3)} for float32",
        )
    keywords: dict[str, Any] = {}
    if request.inputs is None and not signed:
        known = request.known(_arguments(function.python_function))
        keywords = {name: tf.TensorSpec(shape, tf.float32) for name, shape in known.items()}
    try:
        with quiet():
            return function.get_concrete_function(*(request.inputs or ()), **keywords)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise InvalidArgumentError(
            f"TensorFlow can't trace the function: {type(error).__name__}: {lines[-1] if lines else ''}",
            got=", ".join(f"{name}: {spec}" for name, spec in keywords.items()) or str(request.inputs or "no inputs"),
            hint="give its inputs: from_tensorflow(function, inputs=[tf.TensorSpec(shape, dtype), ...])",
        ) from error


def _arguments(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def frozen(function: Any, names: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Frozen:
    """The graph of a concrete function; `names` and `outputs` say what to call its inputs and outputs.

    Raises `UnsupportedError` for inputs and outputs that are no dense tensors, and where TensorFlow can't do it.
    """
    tf = tensorflow("importing a function of TensorFlow's")
    specs = _specs(tf, function)
    try:
        with quiet(), tf.device("/cpu:0"):
            made = freezing.constants(function)
            graph = made.graph.as_graph_def()
    except UnsupportedError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"TensorFlow can't make constants of the variables: {type(error).__name__}: {error}".partition("\n")[0],
            hint="keep what the function is a part of: its variables go with it"
            if "have been deleted" in str(error)
            else "a graph of more than 2 GB can't be frozen",
        ) from error
    tensors = [tensor for tensor in made.inputs if tensor.dtype != tf.resource]
    if names is None:
        named = [path[-1] if path else spec.name for path, spec in specs]
        fits = len(named) == len(tensors) and all(named)
        names = unique(named if fits else (tensor.name.partition(":")[0] for tensor in tensors))
    if outputs is None:
        outputs = output_names(function.structured_outputs)
    if len(outputs) != len(made.outputs):
        outputs = unique("output" for _ in made.outputs)
    return Frozen(
        graph,
        [Port(name, tensor.name) for name, tensor in zip(names, tensors, strict=True)],
        [Port(name, tensor.name) for name, tensor in zip(outputs, made.outputs, strict=True)],
        {tensor.name: None if tensor.shape.rank is None else tensor.shape.as_list() for tensor in tensors},
        function.name,
    )


def _specs(tf: Any, function: Any) -> list[tuple[tuple[str, ...], Any]]:
    """The tensors that a function takes, each with the keys that lead to it."""
    signature = function.structured_input_signature
    if signature is None:
        return []
    found = [(path, spec) for path, spec in leaves(signature) if isinstance(spec, tf.TypeSpec)]
    for path, spec in (*found, *leaves(function.structured_outputs)):
        if isinstance(spec, tf.Tensor | tf.TensorSpec):
            continue
        if isinstance(spec, tf.TypeSpec) or not hasattr(spec, "dtype"):
            raise UnsupportedError(
                f"an input or output is no dense tensor: {type(spec).__name__}",
                tensor=path[-1] if path else getattr(spec, "name", None),
                hint="wrap it in a tf.function that takes and gives dense tensors",
            )
    return found
