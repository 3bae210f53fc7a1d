"""Parts of modules that engines run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from neurenix.errors import UnsupportedError
from neurenix.torch import conversion
from neurenix.torch.calls import EngineCall, laid_out
from neurenix.torch.engine_op import adopt, opened, run, signature, to_bytes
from neurenix.torch.runner import as_tensor, check_dtypes


class EngineModule(torch.nn.Module):
    """A part of a module that an engine runs. Its bytes are a buffer, so that files of torch's hold them."""

    engine: torch.Tensor

    def __init__(self, built: conversion.Built, own: Sequence[int], several: bool, device: torch.device) -> None:
        super().__init__()
        self._several = several
        self._device = device
        self._orders = built.orders
        self._inputs = tuple(list(own).index(place) for place in built.inputs)
        #: The names of constants in the engine, and in the module that was compiled.
        self.names: dict[str, str] = {}
        self._use(built.model)
        check_dtypes(self._call(device), built)

    def _use(self, model: Any) -> None:
        self._signature = signature(model)
        self.register_buffer("engine", to_bytes(model))
        adopt(self.engine, model, self._device)

    def _call(self, device: torch.device) -> EngineCall:
        return opened(self.engine, device)

    @property
    def model(self) -> Any:
        """The engine, as `optimize_model` gives it."""
        return self._call(self._device).model

    def forward(self, *args: Any) -> Any:
        """What the part gives for its arguments."""
        given = [as_tensor(args[place]) for place in self._inputs]
        if _is_watched():
            results = list(torch.ops.neurenix.run(self.engine, given, self._signature))
        else:
            results = run(self.engine, given)
        for place, order in enumerate(self._orders):
            if order is not None:
                results[place] = laid_out(results[place], order)
        return tuple(results) if self._several else results[0]

    def refitted(self, state: Mapping[str, Any]) -> EngineModule:
        """The same with the weights of a state dict; raises as `OptimizedModel.update_weights`."""
        made = copy.copy(self)
        made._buffers = dict(self._buffers)
        model = copy.copy(self.model)
        known = {name for name, _, _ in model._engine.weights}
        wanted = {name: state[source] for name, source in self.names.items() if source in state}
        missing = [self.names[name] for name in wanted if name not in known]
        if missing:
            raise UnsupportedError(
                "weights can't be replaced in this engine",
                got=", ".join(missing[:3]),
                hint="compile with immutable_weights=False",
            )
        model.update_weights(wanted)
        made._use(model)
        return made


def _is_watched() -> bool:
    """Whether something of torch's must see the operator: a tracer, a mode, a transform, the profiler."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._autograd._profiler_enabled()
    )
