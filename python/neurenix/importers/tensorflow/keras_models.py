"""Keras models: what they take and give, and their graphs where TensorFlow is Keras' backend."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.tensorflow import functions, keras_subclasses
from neurenix.importers.tensorflow.libraries import quiet, tensorflow
from neurenix.importers.tensorflow.ports import leaves, output_names, unique
from neurenix.importers.tensorflow.request import Request

#: What Keras calls tensors that nobody named; the number depends on what the process did before.
UNNAMED = re.compile(r"keras_tensor(_\d+)?")

#: What makes letters of a terminal bold.
STYLE = re.compile(r"\x1b\[\d*m")


def backend_of(model: Any) -> str:
    """What a model's arithmetic is done with."""
    if any(cls.__module__.partition(".")[0] == "tf_keras" for cls in type(model).__mro__):
        return "tensorflow"
    import keras

    return str(keras.backend.backend())


def structure_of(model: Any, request: Request, spec: Any) -> Any:
    """What a model is called with: dicts, lists and tuples of `spec(shape, dtype, name)`.

    Raises `InvalidArgumentError` for a subclassed model of which nobody says what it takes.
    """
    tensors = getattr(model, "inputs", None)
    if not tensors:
        return keras_subclasses.structure(model, request, spec)
    whole = model.input if hasattr(model, "_inputs_struct") else tensors[0] if len(tensors) == 1 else list(tensors)
    return _mapped(whole, lambda t: spec(tuple(t.shape), str(getattr(t.dtype, "name", t.dtype)), t.name))


def _mapped(structure: Any, function: Any) -> Any:
    if isinstance(structure, Mapping):
        return {key: _mapped(value, function) for key, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        return [_mapped(value, function) for value in structure]
    return function(structure)


def calls_by_name(model: Any, structure: Any) -> bool:
    """Whether a subclassed model takes several inputs as arguments of these names, and not as one dict."""
    if getattr(model, "inputs", None) or not isinstance(structure, Mapping):
        return False
    parameters = inspect.signature(model.call).parameters
    return all(name in parameters for name in structure)


def input_names(structure: Any, request: Request) -> list[str]:
    """What the inputs are called: by their key, else as their tensor; "input", "input_1", ... where nobody named it."""
    if request.names is not None:
        return list(request.names)
    names = (path[-1] if path else leaf.name for path, leaf in leaves(structure))
    return unique("input" if UNNAMED.fullmatch(name or "keras_tensor") else name for name in names)


def names_of_outputs(model: Any, outputs: Any) -> list[str]:
    """What the outputs are called: by their key, else as Keras calls the layers that give them."""
    named = list(getattr(model, "output_names", None) or [])
    found = list(leaves(outputs))
    if any(path for path, _ in found) or len(named) != len(found):
        return output_names(outputs)
    return unique(named)


def names_before_a_call(model: Any) -> list[str] | None:
    """As `names_of_outputs`; None for a model that says what it gives only when it is called."""
    tensors = getattr(model, "outputs", None)
    if not tensors:
        return None
    return names_of_outputs(model, model.output if hasattr(model, "_inputs_struct") else list(tensors))


def not_callable(error: Exception, shapes: Mapping[str, Sequence[Any]]) -> InvalidArgumentError:
    """The error where a model can't be called with inputs of these shapes."""
    return InvalidArgumentError(
        f"the model can't be called: {type(error).__name__}: {_reason(error)}",
        got=", ".join(f"{name}: {tuple(dims)}" for name, dims in shapes.items()),
        hint=keras_subclasses.HINT,
    )


def _reason(error: Exception) -> str:
    """What Keras says between the layer that fails and what it was called with, or TensorFlow behind the traceback."""
    text = STYLE.sub("", str(error)).partition("Arguments received by")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    layers = [index for index, line in enumerate(lines) if line.startswith("Exception encountered when calling")]
    behind = lines[layers[-1] + 1 :] if layers else []
    if behind and not behind[0].startswith("in user code"):
        return behind[0]
    return lines[-1] if lines else ""


def frozen(model: Any, request: Request) -> functions.Frozen:
    """The graph of a model as it computes with `training=False`, by TensorFlow.

    Raises `UnsupportedError` where Keras computes with something else.
    """
    backend = backend_of(model)
    if backend != "tensorflow":
        raise UnsupportedError(
            f"Keras computes with {backend} here, and not with TensorFlow",
            hint="compare with Keras itself (--against keras), or open the saved model with KERAS_BACKEND=tensorflow",
        )
    tf = tensorflow("importing a Keras model")
    structure = structure_of(model, request, lambda shape, dtype, name: tf.TensorSpec(shape, dtype, name))
    by_name = calls_by_name(model, structure)

    @tf.function  # type: ignore[untyped-decorator]
    def call(inputs: Any) -> Any:
        return model(**inputs, training=False) if by_name else model(inputs, training=False)

    try:
        with quiet(), tf.device("/cpu:0"):
            concrete = call.get_concrete_function(structure)
    except Exception as error:
        raise not_callable(error, {leaf.name: leaf.shape for _, leaf in leaves(structure)}) from error
    made = functions.frozen(
        concrete, input_names(structure, request), names_of_outputs(model, concrete.structured_outputs)
    )
    made.name = str(model.name)
    return made
