"""Tensors put together, taken apart and picked from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.nn.traced import Traced


def cat(tensors: Sequence[Traced], dim: int = 0) -> Traced:
    """Tensors one after another along a dimension."""
    return tensors[0].trace.add("Concat", *tensors, axis=dim)


def stack(tensors: Sequence[Traced], dim: int = 0) -> Traced:
    """Tensors along a new dimension."""
    return cat([t.unsqueeze(dim) for t in tensors], dim)


def split(x: Traced, split_size: int | Sequence[int], dim: int = 0) -> list[Traced]:
    """Parts of these sizes along a dimension."""
    return x.split(split_size, dim)


def chunk(x: Traced, chunks: int, dim: int = 0) -> list[Traced]:
    """Up to `chunks` equal parts along a dimension."""
    return x.chunk(chunks, dim)


def flatten(x: Traced, start_dim: int = 0, end_dim: int = -1) -> Traced:
    """Dimensions from `start_dim` to `end_dim` as one."""
    return x.flatten(start_dim, end_dim)


def where(condition: Traced, a: Any, b: Any) -> Traced:
    """a where the condition holds, b elsewhere."""
    if isinstance(a, Traced):
        return a.where(condition, b)
    if isinstance(b, Traced):
        second, first = b._pair(a)
    else:
        kind = np.result_type(np.asarray(a), np.asarray(b)).kind
        dtype = np.dtype({"b": np.bool_, "i": np.int64, "u": np.int64}.get(kind, np.float32))
        first, second = (condition.trace.constant(np.asarray(value, dtype)) for value in (a, b))
    return condition.trace.add("Where", condition, first, second)


def maximum(a: Traced, b: Any) -> Traced:
    """The greater of each pair of elements."""
    return a.maximum(b)


def minimum(a: Traced, b: Any) -> Traced:
    """The lesser of each pair of elements."""
    return a.minimum(b)


def dropout(x: Traced, p: float = 0.5, training: bool = False, inplace: bool = False) -> Traced:
    """The input: inference drops nothing."""
    return x


alpha_dropout = dropout1d = dropout2d = dropout3d = feature_alpha_dropout = dropout
