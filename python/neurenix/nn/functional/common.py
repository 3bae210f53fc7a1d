"""What the functions share: weights become constants, and numbers spread over dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.nn.traced import Traced
from neurenix.nn.tracing import current

Ints = int | Sequence[int]


def spread(value: Ints, rank: int) -> list[int]:
    """One integer for every spatial dimension, or as many as there are."""
    values = [value] * rank if isinstance(value, int) else [int(v) for v in value]
    if len(values) != rank:
        raise InvalidArgumentError("a list has another length than there are spatial dimensions",
                                   expected=str(rank), got=str(values))  # fmt: skip
    return values


def traced(*values: Any) -> list[Any]:
    """Weights become constants of the network; None stays."""
    return [v if isinstance(v, Traced) or v is None else current().constant(v) for v in values]


def per_batch(x: Traced, rank: int, compute: Callable[[Traced], Traced]) -> Traced:
    """What `compute` gives for [N, C, spatial...], for [C, spatial...] too. Raises `ShapeError` for other ranks."""
    if x.ndim == rank + 1:
        return compute(x.unsqueeze(0)).squeeze(0)
    if x.ndim != rank + 2:
        raise ShapeError(
            "the input has another number of dimensions",
            layer=x.trace.path[-1] or None,
            tensor=x.tensor.name,
            expected=f"[N, C] or [C] before {rank} spatial dimensions",
            got=str(list(x.shape)),
        )
    return compute(x)


def fixed(x: Traced, axis: int, why: str) -> int:
    """The extent of a dimension. Raises `UnsupportedError`, which says why it must be known, where it is dynamic."""
    extent = x.shape[axis]
    if isinstance(extent, int):
        return extent
    raise UnsupportedError(why, tensor=x.tensor.name, expected=f"a fixed dimension {axis}", got=str(list(x.shape)))
