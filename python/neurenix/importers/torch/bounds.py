"""Bounds of clamps that the integers of a tensor reach: torch's exporters let others wrap around."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten

_NAMES = [name + suffix for name in ("clamp", "clip", "clamp_min", "clamp_max") for suffix in ("", "_")]
_FUNCTIONS = frozenset(getattr(space, name) for space in (torch, torch.Tensor) for name in _NAMES)
_OPERATORS = frozenset(getattr(aten, name).default for name in _NAMES)


def within_dtype(dtype: torch.dtype, bounds: Sequence[Any]) -> list[Any]:
    """The bounds of a tensor of this dtype: those that its integers do not reach as its limits.

    As they are where one is neither an integer nor None: the results may have another dtype.
    """
    of_floats = dtype.is_floating_point or dtype.is_complex or dtype == torch.bool
    if of_floats or not all(bound is None or isinstance(bound, int) for bound in bounds):
        return list(bounds)
    limits = torch.iinfo(dtype)
    return [None if bound is None else min(max(bound, limits.min), limits.max) for bound in bounds]


def _bounded(dtype: torch.dtype, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of a clamp of a tensor of this dtype, which is the first one."""
    named = [name for name in ("min", "max") if name in kwargs]
    found = within_dtype(dtype, [*args[1:], *(kwargs[name] for name in named)])
    given = len(args) - 1
    return (args[0], *found[:given]), dict(kwargs) | dict(zip(named, found[given:], strict=True))


class BoundsWithinDtype(TorchFunctionMode):
    """While an exporter runs a module, its clamps have bounds that their integers reach."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _FUNCTIONS and args and isinstance(args[0], torch.Tensor):
            args, kwargs = _bounded(args[0].dtype, args, kwargs)
        return func(*args, **kwargs)


@contextlib.contextmanager
def bounds_within_dtype(graph: fx.Graph) -> Iterator[None]:
    """The same of the operators of a graph, which afterwards is as it was."""
    before = {node: (node.args, node.kwargs) for node in graph.nodes if node.target in _OPERATORS}
    try:
        for node, (args, kwargs) in before.items():
            found = getattr(args[0], "meta", {}).get("val")
            if isinstance(found, torch.Tensor):
                node.args, node.kwargs = _bounded(found.dtype, args, kwargs)
        yield
    finally:
        for node, (args, kwargs) in before.items():
            node.args, node.kwargs = args, kwargs
