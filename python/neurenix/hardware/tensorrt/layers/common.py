"""What layers of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix._native import Network, Tensor
from neurenix.errors import DTypeError, InvalidArgumentError, ShapeError

Ints = int | Sequence[int]


def spread(value: Ints, rank: int, what: str = "a list") -> list[int]:
    """One integer for every spatial dimension, or as many as there are."""
    values = [int(value)] * rank if isinstance(value, (int, np.integer)) else [int(v) for v in value]
    if len(values) != rank:
        raise ShapeError(
            f"{what} does not have one element per spatial dimension", expected=f"{rank} integers", got=str(values)
        )
    return values


def axes_of(mask: int, rank: int) -> list[int]:
    """The axes whose bits are set."""
    found = [axis for axis in range(rank) if mask >> axis & 1]
    if mask >> rank or not found:
        raise InvalidArgumentError(
            "the axes are given as bits", expected=f"1 to {(1 << rank) - 1}, bit i for axis i", got=str(mask)
        )
    return found


def one_axis(mask: int, rank: int, what: str) -> int:
    """The only axis whose bit is set."""
    axes = axes_of(mask, rank)
    if len(axes) != 1:
        raise InvalidArgumentError(f"{what} runs along one axis", got=str(axes))
    return axes[0]


def member(value: Any, table: type, what: str) -> None:
    """Raises `InvalidArgumentError` for what is no word of a kind."""
    if not isinstance(value, table):
        words: Any = table
        expected = ", ".join(f"{table.__name__}.{word.name}" for word in words)
        raise InvalidArgumentError(f"{what} is no {table.__name__}", expected=expected, got=repr(value))


def rank_of(tensor: Any) -> int:
    """The number of dimensions."""
    return len(tensor.shape)


def placeholder(network: Network, name: str, dtype: Any, shape: Sequence[int | str]) -> Tensor:
    """A tensor of which a draft knows the type alone."""
    return network.capture(Network(name).add_input(name, dtype, shape))


def require_scalar(tensor: Tensor, dtypes: Sequence[str], what: str) -> None:
    """Raises `DTypeError` or `ShapeError` for what is not one element of one of these types."""
    if tensor.dtype.name not in dtypes:
        raise DTypeError(
            f"{what} is of another type", tensor=tensor.name, expected=" or ".join(dtypes), got=tensor.dtype.name
        )
    if tensor.shape:
        raise ShapeError(
            f"{what} has no dimensions",
            tensor=tensor.name,
            expected="[]",
            got=str(list(tensor.shape)),
            hint="reshape it to () with add_shuffle",
        )
