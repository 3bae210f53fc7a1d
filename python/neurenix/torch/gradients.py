"""Graphs whose results gradients may be asked of: engines compute the results, torch the gradients if anybody asks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from neurenix.log import LOG
from neurenix.torch import stats


class Deferred:
    """A compiled graph that is called with gradients switched on.

    Whoever calls a model without `torch.no_grad()` mostly wants no gradients. So engines compute the results; when a
    gradient is asked for, torch runs the graph again, and from then on all of its calls, since that is training.
    """

    def __init__(self, module: fx.GraphModule, function: Callable[..., Any], report: stats.GraphReport) -> None:
        self._module = module
        self._function = function
        self._report = report
        self._trains = False
        self._differentiable = _differentiable(module)

    def __call__(self, *args: Any) -> Any:
        if self._trains:
            return self._module.forward(*args)
        if not any(self._differentiable):
            with torch.no_grad():
                return self._function(*args)
        return _Function.apply(self, *args)

    def forward(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The results by engines."""
        return tuple(self._function(*args))

    def non_differentiable(self, results: Sequence[Any]) -> list[torch.Tensor]:
        """The results that have no gradient."""
        pairs = zip(results, self._differentiable, strict=True)
        return [one for one, wanted in pairs if isinstance(one, torch.Tensor) and not wanted]

    def backward(self, args: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """The gradients of the arguments, by torch."""
        if not self._trains:
            self._trains = True
            self._report.given_back = "gradients were asked for"
            stats.count("training")
            LOG.info("%s runs in torch from now on: gradients were asked for", self._report.name)
        wanted = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        with torch.enable_grad():
            results = self._module.forward(*args)
            pairs = [
                (one, gradient)
                for one, gradient in zip(results, gradients, strict=True)
                if isinstance(one, torch.Tensor) and one.requires_grad and gradient is not None
            ]
            found = torch.autograd.grad(
                [one for one, _ in pairs],
                wanted,
                [gradient for _, gradient in pairs],
                allow_unused=True,
                create_graph=torch.is_grad_enabled(),
            )
        given = iter(found)
        return [next(given) if isinstance(a, torch.Tensor) and a.requires_grad else None for a in args]


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: Deferred, *args: Any) -> tuple[Any, ...]:
        """The results."""
        ctx.graph = graph
        ctx.others = [None if isinstance(a, torch.Tensor) else a for a in args]
        ctx.places = [place for place, a in enumerate(args) if isinstance(a, torch.Tensor)]
        ctx.save_for_backward(*(args[place] for place in ctx.places))
        ctx.set_materialize_grads(False)
        ctx.autocasts = _autocasts(args)
        results = graph.forward(args)
        ctx.mark_non_differentiable(*graph.non_differentiable(results))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """The gradients."""
        args = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor
        with contextlib.ExitStack() as stack:
            for autocast in ctx.autocasts:
                stack.enter_context(autocast)
            return (None, *ctx.graph.backward(args, gradients))


def _autocasts(args: Sequence[Any]) -> list[Any]:
    """What `torch.autocast` is for this call, which the graph that runs again must have too."""
    devices = {"cpu", *(one.device.type for one in args if isinstance(one, torch.Tensor))}
    return [
        torch.autocast(
            device,
            dtype=torch.get_autocast_dtype(device),
            enabled=torch.is_autocast_enabled(device),
            cache_enabled=torch.is_autocast_cache_enabled(),
        )
        for device in sorted(devices)
    ]


def _differentiable(module: fx.GraphModule) -> list[bool]:
    """Which results of a graph have a gradient, as torch's tracer saw."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    results = output.args[0] if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
    found = []
    for one in results:
        seen = one.meta.get("example_value") if isinstance(one, fx.Node) else None
        found.append(isinstance(seen, torch.Tensor) and seen.requires_grad)
    return found
