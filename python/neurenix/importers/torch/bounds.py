"""Bounds of clamps that the integers of a tensor reach: torch's exporters let others wrap around."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten

#: Functions of torch, with the names of their arguments behind the tensor.
_FUNCTIONS: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys((torch.clamp, torch.clip, torch.clamp_, torch.clip_), ("min", "max")),
    **dict.fromkeys(
        (torch.Tensor.clamp, torch.Tensor.clip, torch.Tensor.clamp_, torch.Tensor.clip_),
        ("min", "max"),
    ),
    **dict.fromkeys((torch.clamp_min, torch.Tensor.clamp_min, torch.Tensor.clamp_min_), ("min",)),
    **dict.fromkeys((torch.clamp_max, torch.Tensor.clamp_max, torch.Tensor.clamp_max_), ("max",)),
}
_OPERATORS = frozenset(
    getattr(aten, name + suffix).default for name in ("clamp", "clip", "clamp_min", "clamp_max") for suffix in ("", "_")
)


def near(dtype: torch.dtype, bounds: Sequence[Any]) -> list[Any]:
    """The bounds of a tensor of this dtype: those that its integers do not reach as its limits, others as they are."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return list(bounds)
    limits = torch.iinfo(dtype)
    return [min(max(one, limits.min), limits.max) if type(one) is int else one for one in bounds]


class near_bounds(TorchFunctionMode):
    """While an exporter runs a module, its clamps have bounds that their integers reach."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        named = _FUNCTIONS.get(func)
        if named is not None and args and isinstance(args[0], torch.Tensor):
            dtype = args[0].dtype
            args = (args[0], *near(dtype, args[1:]))
            kwargs |= {name: near(dtype, [kwargs[name]])[0] for name in named if name in kwargs}
        return func(*args, **kwargs)


@contextlib.contextmanager
def near_bounds_of(graph: fx.Graph) -> Iterator[None]:
    """The same of the operators of a graph, which is as it was behind it."""
    before = {node: (node.args, node.kwargs) for node in graph.nodes if node.target in _OPERATORS}
    try:
        for node, (args, kwargs) in before.items():
            found = getattr(args[0], "meta", {}).get("val")
            if isinstance(found, torch.Tensor):
                node.args = (args[0], *near(found.dtype, args[1:]))
                node.kwargs = dict(zip(kwargs, near(found.dtype, list(kwargs.values())), strict=True))
        yield
    finally:
        for node, (args, kwargs) in before.items():
            node.args, node.kwargs = args, kwargs
