"""Keras models whose backend is PyTorch: through PyTorch's own exporter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from neurenix._native import Network
from neurenix.importers.tensorflow import keras_models
from neurenix.importers.tensorflow.ports import leaves
from neurenix.importers.tensorflow.request import Request
from neurenix.importers.torch import from_torch

#: What an open dimension is traced at, other than the sizes of fixed ones are wont to be.
SIZE = 2


class Spec:
    """What a model takes as one of its inputs."""

    def __init__(self, shape: tuple[int | None, ...], dtype: str, name: str) -> None:
        self.shape = shape
        self.dtype = dtype
        self.name = name


class Module(torch.nn.Module):
    """A Keras model as a module that takes its tensors one by one."""

    def __init__(self, model: Any, structure: Any) -> None:
        super().__init__()
        self.model = model
        self.structure = structure
        self.by_name = keras_models.calls_by_name(model, structure)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Computes with `training=False`."""
        left = list(tensors)
        inputs = _filled(self.structure, left)
        outputs = self.model(**inputs, training=False) if self.by_name else self.model(inputs, training=False)
        return tuple(value for _, value in leaves(outputs))


def _filled(structure: Any, left: list[torch.Tensor]) -> Any:
    """The structure with tensors, taken from the front in the order of `leaves`."""
    if isinstance(structure, Mapping):
        found = {key: _filled(structure[key], left) for key in sorted(structure)}
        return {key: found[key] for key in structure}
    if isinstance(structure, (list, tuple)):
        return [_filled(part, left) for part in structure]
    return left.pop(0)


def import_by_torch(model: Any, request: Request) -> Network:
    """The network of a model; raises as `from_torch`."""
    structure = keras_models.structure_of(model, request, Spec)
    names, specs = keras_models.input_names(structure), [spec for _, spec in leaves(structure)]
    known = request.known(names)
    inputs, dynamic = {}, {}
    for name, spec in zip(names, specs, strict=True):
        shape = [
            own if own is not None else given for own, given in zip(spec.shape, _of(known, name, spec), strict=True)
        ]
        inputs[name] = torch.zeros([SIZE + axis if size is None else size for axis, size in enumerate(shape)]).to(
            getattr(torch, spec.dtype)
        )
        dynamic[name] = {axis: f"{name}.{axis}" if axis else "batch" for axis, size in enumerate(shape) if size is None}
    return from_torch(Module(model, structure), inputs, dynamic=dynamic)


def _of(known: Mapping[str, list[int | None]], name: str, spec: Spec) -> list[int | None]:
    return known.get(name, [None] * len(spec.shape))
