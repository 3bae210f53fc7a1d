"""Keras models whose backend is PyTorch: through PyTorch's own exporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from neurenix._native import Network
from neurenix.errors import UnsupportedError
from neurenix.importers.tensorflow import keras_models
from neurenix.importers.tensorflow.ports import leaves
from neurenix.importers.tensorflow.request import Request
from neurenix.importers.torch import request as torch_request
from neurenix.importers.torch.export import export_module
from neurenix.packages import need

#: What an open first dimension is traced at, and the next one by one more: torch takes 1 for fixed, and same for same.
SIZE = 2


class Spec:
    """What a model takes as one of its inputs."""

    def __init__(self, shape: tuple[int | None, ...], dtype: str, name: str) -> None:
        self.shape = shape
        self.dtype = dtype
        self.name = name


def _module(model: Any, structure: Any, arity: int) -> torch.nn.Module:
    """A Keras model as a module that takes its tensors one by one."""
    by_name = keras_models.calls_by_name(model, structure)

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def call(self, *tensors: torch.Tensor) -> Any:
            inputs = _filled(structure, list(tensors))
            outputs = self.model(**inputs, training=False) if by_name else self.model(inputs, training=False)
            return tuple(value for _, value in leaves(outputs))

    # torch.export wants to know each argument.
    forwards: list[Callable[..., Any]] = [
        lambda self, a: self.call(a),
        lambda self, a, b: self.call(a, b),
        lambda self, a, b, c: self.call(a, b, c),
        lambda self, a, b, c, d: self.call(a, b, c, d),
    ]
    if arity > len(forwards):
        raise UnsupportedError(
            "a Keras model whose backend is PyTorch has too many inputs",
            expected=f"at most {len(forwards)}",
            got=str(arity),
            hint="install TensorFlow, and open the saved model with KERAS_BACKEND=tensorflow",
        )
    Module.forward = forwards[arity - 1]
    return Module()


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
    need("onnxscript", "importing a Keras model whose backend is PyTorch", ("torch", "onnx", "onnxscript"))
    structure = keras_models.structure_of(model, request, Spec)
    names, specs = keras_models.input_names(structure), [spec for _, spec in leaves(structure)]
    known = request.known(names)
    inputs, dynamic = {}, {}
    for name, spec in zip(names, specs, strict=True):
        given = known.get(name, [None] * len(spec.shape))
        shape = [other if own is None else own for own, other in zip(spec.shape, given, strict=True)]
        sizes = [SIZE + axis if size is None else size for axis, size in enumerate(shape)]
        inputs[name] = torch.zeros(sizes, dtype=getattr(torch, spec.dtype))
        dynamic[name] = {axis: f"{name}_{axis}" if axis else "batch" for axis, size in enumerate(shape) if size is None}
    module = _module(model, structure, len(names))
    asked = torch_request.Request.of(module, inputs, None, dynamic)
    return export_module(module, replace(asked, outputs=_outputs(model)), dynamo=True, refittable=False)


def _outputs(model: Any) -> list[str] | None:
    tensors = getattr(model, "outputs", None)
    if not tensors:
        return None
    whole = model.output if hasattr(model, "_inputs_struct") else list(tensors)
    return keras_models.names_of_outputs(model, whole)
