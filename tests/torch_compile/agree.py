"""Compares what a compiled function gives with what torch gives: values, dtypes, strides, gradients wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def agree(found: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    """Asserts that two results are the same within `tolerance` of the greatest element of each tensor, or of 1."""
    ours, theirs = pytree.tree_leaves(found), pytree.tree_leaves(wanted)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if not isinstance(other, torch.Tensor):
            assert one == other
            continue
        assert (one.dtype, one.shape, one.requires_grad) == (other.dtype, other.shape, other.requires_grad)
        if other.numel() and not other.is_complex():
            error = (one.double() - other.double()).abs().max().item()
            assert error <= tolerance * max(1.0, other.double().abs().max().item()), error
        if all(extent > 1 for extent in other.shape):
            assert one.stride() == other.stride()


def compiled(function: Callable[..., Any], dynamic: bool | None = None, **options: Any) -> Any:
    """The function with our backend; engines are not timed, and no other process's are used."""
    from neurenix.torch.dynamo import neurenix

    settings = {"optimization_level": 0, "timing_cache": False, "cache": False, "threads": 1} | options
    return torch.compile(function, backend=neurenix, dynamic=dynamic, options=settings)
