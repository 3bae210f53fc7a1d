"""A Keras model as a function that takes its tensors one by one, and what these are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.importers.tensorflow import keras_models, ports
from neurenix.importers.tensorflow.ports import Port, leaves
from neurenix.importers.tensorflow.request import Request

#: What the first open dimension is traced at, the next one at one more: tracers take 1 for fixed, and same for same.
SIZE = 2


class Spec:
    """What a model takes as one of its inputs."""

    def __init__(self, shape: tuple[int | None, ...], dtype: str, name: str) -> None:
        self.shape = shape
        self.dtype = dtype
        self.name = name


@dataclass(frozen=True)
class Signature:
    """What a model is called with: its structure, and of each leaf in the order of `leaves` the name, dtype and shape.

    Open dimensions have names, as the request says.
    """

    structure: Any
    names: list[str]
    dtypes: list[str]
    shapes: dict[str, list[int | str]]

    def examples(self, make: Callable[[list[int], str], Any]) -> list[Any]:
        """What `make` gives for the shape and dtype of each leaf, with a size for each open dimension."""
        open_ones = dict.fromkeys(dim for dims in self.shapes.values() for dim in dims if isinstance(dim, str))
        sizes = {name: SIZE + index for index, name in enumerate(open_ones)}
        return [
            make([sizes[dim] if isinstance(dim, str) else dim for dim in self.shapes[name]], dtype)
            for name, dtype in zip(self.names, self.dtypes, strict=True)
        ]

    def fixed(self, request: Request) -> Signature:
        """The same with the sizes that the hints know: tracers take more models where fewer dimensions are open."""
        known = request.known(self.names)
        shapes = {
            name: [
                size if isinstance(dim, str) and size is not None else dim
                for dim, size in zip(dims, known.get(name, [None] * len(dims)), strict=True)
            ]
            for name, dims in self.shapes.items()
        }
        return replace(self, shapes=shapes)

    def refusal(self, error: Exception) -> InvalidArgumentError:
        """The error where the model can't be called with these."""
        return keras_models.not_callable(error, self.shapes)


def signature(model: Any, request: Request) -> Signature:
    """What a model is called with; raises as `structure_of`, and as `ports.dims` for what the request says."""
    structure = keras_models.structure_of(model, request, Spec)
    names, specs = keras_models.input_names(structure, request), [spec for _, spec in leaves(structure)]
    own = dict(zip(names, specs, strict=True))
    shapes = ports.dims([Port(name, name) for name in names], lambda port: own[port.name].shape, request)
    return Signature(structure, names, [spec.dtype for spec in specs], shapes)


def build(model: Any, asked: Signature) -> None:
    """Gives a model its weights, if it has none before it is called.

    Raises `InvalidArgumentError` where it can't be called so.
    """
    if getattr(model, "built", True):
        return
    import keras

    try:
        if isinstance(model, keras.Sequential):
            # A call would fix the sizes that are open.
            model.build(tuple(dim if isinstance(dim, int) else None for dim in asked.shapes[asked.names[0]]))
        else:
            whole(model, asked.structure)(*asked.examples(np.zeros))
    except Exception as error:
        raise asked.refusal(error) from error


def function(model: Any, structure: Any) -> Callable[..., tuple[Any, ...]]:
    """The model with `training=False` as a function of the leaves of its structure, which gives the leaves it makes."""
    called = whole(model, structure)
    return lambda *tensors: flat(called(*tensors))


def whole(model: Any, structure: Any) -> Callable[..., Any]:
    """As `function`, but gives what the model gives."""
    by_name = keras_models.calls_by_name(model, structure)

    def call(*tensors: Any) -> Any:
        inputs = filled(structure, tensors)
        return model(**inputs, training=False) if by_name else model(inputs, training=False)

    return call


def flat(outputs: Any) -> tuple[Any, ...]:
    """The leaves of what a model gave."""
    return tuple(value for _, value in leaves(outputs))


def filled(structure: Any, tensors: Sequence[Any]) -> Any:
    """The structure with tensors for its leaves."""
    return _filled(structure, list(tensors))


def _filled(structure: Any, left: list[Any]) -> Any:
    if isinstance(structure, Mapping):
        found = {key: _filled(structure[key], left) for key in sorted(structure)}
        return {key: found[key] for key in structure}
    if isinstance(structure, (list, tuple)):
        return [_filled(part, left) for part in structure]
    return left.pop(0)
