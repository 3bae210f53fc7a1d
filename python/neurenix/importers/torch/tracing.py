"""A torch model as ONNX, together with what torch itself computes for every tensor of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils import _pytree as pytree

from neurenix import arrays
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.torch.constants import model_of
from neurenix.importers.torch.export import quiet_export
from neurenix.importers.torch.request import Request
from neurenix.importers.torch.silence import first_line
from neurenix.importers.torch.trying import check_runs, settled
from neurenix.log import LOG

Arrays = dict[str, "np.ndarray[Any, Any]"]


@dataclass(frozen=True)
class Traced:
    """A model, inputs for it, and torch's value of every tensor that has one there."""

    model: onnx.ModelProto
    inputs: Arrays
    values: Arrays


class _Recorder(torch.fx.Interpreter):
    """Runs a graph of torch's and keeps what its nodes give."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.values: Arrays = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        """What the node gives."""
        value = super().run_node(node)
        if isinstance(value, torch.Tensor) and node.op == "call_function":
            self.values[node.name] = arrays.to_numpy(value.detach().clone())
        return value


def trace(
    model: torch.nn.Module | torch.export.ExportedProgram,
    input_shapes: Any,
    given: Callable[[Sequence[str]], Arrays],
    seed: int = 0,
) -> Traced:
    """Exports the model and runs torch on random inputs, or on those that `given` has under the names of the inputs.

    Raises `UnsupportedError` when torch's exporter can't write it, and `InvalidArgumentError` when the module fails.
    """
    if isinstance(model, torch.nn.Module):
        request = settled(model, Request.of(model, None, input_shapes, None))
        examples = request.examples
    else:
        request = None
        examples = [leaf for leaf in pytree.tree_leaves(model.example_inputs) if isinstance(leaf, torch.Tensor)]
    try:
        program = quiet_export(model, request)
    except Exception as error:
        LOG.debug("torch's exporter failed", exc_info=error)
        if isinstance(model, torch.nn.Module) and request is not None:
            check_runs(model, request)
        raise UnsupportedError(f"torch can't write the model as ONNX: {first_line(error)}") from None
    proto = model_of(program)
    names = [value.name for value in proto.graph.input]
    if len(names) != len(examples):
        raise InvalidArgumentError(
            "the exported model has another number of inputs", expected=str(len(examples)), got=", ".join(names)
        )
    loaded = given(names)
    generator = torch.Generator().manual_seed(seed)
    feeds = [_feed(example, loaded.get(name), generator) for name, example in zip(names, examples, strict=True)]
    recorder = _Recorder(program.exported_program.module())
    with torch.no_grad():
        results = recorder.run(*feeds)
    outputs = results if isinstance(results, (tuple, list)) else [results]
    values = recorder.values | {
        value.name: arrays.to_numpy(result)
        for value, result in zip(proto.graph.output, outputs, strict=False)
        if isinstance(result, torch.Tensor)
    }
    return Traced(proto, {n: arrays.to_numpy(f) for n, f in zip(names, feeds, strict=True)}, values)


def _feed(example: torch.Tensor, loaded: Any, generator: torch.Generator) -> torch.Tensor:
    if loaded is not None:
        return torch.from_numpy(loaded)
    if example.is_floating_point():
        return torch.randn(example.shape, generator=generator).to(example.dtype)
    return torch.randint(0, 2, example.shape, generator=generator).to(example.dtype)
