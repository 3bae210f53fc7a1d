"""Keras models whose backend is PyTorch: through PyTorch's own exporter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from neurenix.importers.tensorflow import keras_calls, keras_models, onnx_names
from neurenix.importers.tensorflow.request import Request
from neurenix.importers.torch import request as torch_request
from neurenix.importers.torch.export import exported
from neurenix.packages import need


class _Module(torch.nn.Module):
    """A Keras model as a module that takes its tensors one by one."""

    def __init__(self, model: Any, structure: Any) -> None:
        super().__init__()
        self.model = model
        self.call = keras_calls.function(model, structure)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the model gives, in the order of `leaves`."""
        return self.call(*tensors)


def onnx_model(model: Any, request: Request) -> Any:
    """The ONNX model of a Keras model, with the names that the user knows. Raises as `from_torch`."""
    need("onnxscript", "importing a Keras model whose backend is PyTorch", ("torch", "onnx", "onnxscript"))
    asked = keras_calls.signature(model, request).fixed(request)
    keras_calls.build(model, asked)
    examples = asked.examples(lambda sizes, dtype: torch.zeros(sizes, dtype=getattr(torch, dtype)))
    inputs = dict(zip(asked.names, examples, strict=True))
    dynamic = {
        name: {axis: _symbol(name, axis, dim) for axis, dim in enumerate(dims) if isinstance(dim, str)}
        for name, dims in asked.shapes.items()
    }
    module = _Module(model, asked.structure)
    wanted = torch_request.Request.of(module, inputs, None, dynamic)
    wanted = replace(wanted, outputs=keras_models.names_before_a_call(model))
    found, names = exported(module, wanted, dynamo=True, refittable=False)
    onnx_names.rename(found.graph, names)
    onnx_names.name_dims(found.graph, asked.shapes)
    return found


def _symbol(name: str, axis: int, dim: str) -> str:
    """What PyTorch calls an open dimension."""
    if dim.isidentifier():
        return dim
    return f"{''.join(c if c.isalnum() else '_' for c in name)}_{axis}"
