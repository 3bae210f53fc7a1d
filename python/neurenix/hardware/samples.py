"""What verification runs on, as callers give it: arrays, dicts, or an iterable of such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from neurenix.arrays import Array, to_numpy
from neurenix.errors import InvalidArgumentError

#: As many batches are compared at most: each runs a few times.
MOST = 8


def taken(sample: Any) -> list[Any]:
    """The first batches of what was given for `sample`; of an iterable no more is asked for.

    Raises `InvalidArgumentError` for what can hold no batch.
    """
    if sample is None:
        return []
    if isinstance(sample, (Mapping, tuple)) or hasattr(sample, "shape"):
        return [sample]
    if isinstance(sample, Iterable) and not isinstance(sample, (str, bytes)):
        return list(islice(sample, MOST))
    raise _wrong(sample)


def in_order(batches: Sequence[Any], names: Sequence[str]) -> list[list[Array]]:
    """Each batch as arrays for the inputs of these names, in order.

    Raises `InvalidArgumentError` where a batch has no array for an input, or one for something else.
    """
    return [_in_order(batch, names) for batch in batches]


def _in_order(batch: Any, names: Sequence[str]) -> list[Array]:
    if isinstance(batch, Mapping):
        unknown = [repr(name) for name in batch if name not in names]
        missing = [repr(name) for name in names if name not in batch]
        if unknown or missing:
            raise InvalidArgumentError(
                "a batch of `sample` does not have an array for each input",
                expected=", ".join(map(repr, names)),
                got=", ".join(map(repr, batch)) or "nothing",
            )
        return [to_numpy(batch[name]) for name in names]
    arrays = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if len(arrays) != len(names) or not all(hasattr(array, "shape") for array in arrays):
        raise _wrong(batch, names)
    return [to_numpy(array) for array in arrays]


def _wrong(sample: Any, names: Sequence[str] = ()) -> InvalidArgumentError:
    return InvalidArgumentError(
        "`sample` holds something that is no batch",
        expected=f"arrays for {', '.join(map(repr, names))}"
        if names
        else "arrays, dicts of them, or an iterable of such",
        got=type(sample).__name__,
        hint='give a dict of arrays, as for a call: sample={"input": x}',
    )
