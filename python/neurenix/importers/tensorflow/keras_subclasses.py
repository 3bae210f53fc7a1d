"""What subclassed Keras models take, and Sequential ones that were never built: their callers say it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from neurenix.errors import InvalidArgumentError
from neurenix.importers.tensorflow import kinds
from neurenix.importers.tensorflow.request import Request

#: The way out for models that are called in other ways.
HINT = (
    "save it with model.export(folder) once it was called and give the folder, or give a tf.function around it with "
    "an input_signature of tf.TensorSpecs"
)


def structure(model: Any, request: Request, spec: Any) -> Any:
    """What a model is called with: dicts, lists and tuples of `spec(shape, dtype, name)`.

    One dict or list where the model was called with one, or where several names are said and are no arguments.
    Raises `InvalidArgumentError` where nobody says what it takes.
    """
    if not request.is_said():
        raise InvalidArgumentError(
            "the model does not say what it takes: it is a subclass of keras.Model, or was never built",
            got=type(model).__name__,
            hint="give input_shapes={'name': (None, ...)} with the names of the arguments of `call`",
        )
    said, built = request.said_names(), _built(model)
    names = _names(model, said, built)
    known = request.known(names)
    default = str(getattr(model, "input_dtype", None) or "float32")
    made = {name: spec(tuple(shape), request.integers(name) or default, name) for name, shape in known.items()}
    if isinstance(built, list):
        return _listed(made, built)
    if isinstance(built, Mapping) and set(made) != set(built):
        raise _incomplete(made, list(built))
    return next(iter(made.values())) if len(made) == 1 and not isinstance(built, Mapping) else made


def _names(model: Any, said: list[str], built: Any) -> list[str]:
    """The names that inputs may have."""
    if isinstance(built, Mapping):
        return list(built)
    parameters = [name for name in inspect.signature(model.call).parameters if name not in ("training", "mask")]
    if any(kinds.is_instance(model, package, "Sequential") for package in ("keras", "tf_keras")):
        return said if len(said) == 1 else parameters
    several = len(said) > 1 and len(parameters) == 1
    return said if said and (isinstance(built, list) or several) else parameters


def _built(model: Any) -> Any:
    """The dict or list of shapes of the only argument that a model was called with first; None if it was neither."""
    shapes = getattr(model, "_build_shapes_dict", None) or {}
    only = next(iter(shapes.values())) if len(shapes) == 1 else None
    if isinstance(only, Mapping):
        return only if all(isinstance(key, str) for key in only) else None
    lists = isinstance(only, Sequence) and only and all(isinstance(one, Sequence) for one in only)
    return list(only or ()) if lists else None


def _listed(made: dict[str, Any], built: list[Any]) -> list[Any]:
    if len(made) != len(built):
        raise _incomplete(made, [f"{len(built)} in the order of the list"])
    return list(made.values())


def _incomplete(made: Mapping[str, Any], wanted: list[str]) -> InvalidArgumentError:
    return InvalidArgumentError(
        "the model was called with other inputs before",
        expected=", ".join(wanted),
        got=", ".join(made),
        hint=HINT,
    )
