"""What stands in square brackets."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.nn.traced.base import Base
from neurenix.nn.traced.extent import Extent

if TYPE_CHECKING:
    from neurenix.nn.traced import Traced

#: Where a slice ends that goes to the last element, or to the first one backwards.
_LAST, _FIRST = 2**63 - 1, -(2**63)


def index(x: Traced, key: tuple[Any, ...]) -> Traced:
    """numpy's basic indexing: integers, slices, None and ..., and one array or tensor of integers."""
    # `in` would compare traced tensors, which adds layers.
    at = next((i for i, part in enumerate(key) if isinstance(part, EllipsisType)), len(key))
    consumed = sum(part is not None and part is not Ellipsis for part in key)
    whole = (slice(None),) * (x.ndim - consumed)
    key = (*key[:at], *whole, *key[at + 1 :])
    starts, ends, axes, steps, dropped, added = [], [], [], [], [], []
    picked: tuple[int, Any] | None = None
    axis = place = 0
    for part in key:
        if part is None:
            added.append(place)
            place += 1
            continue
        if isinstance(part, slice):
            if any(bound is not None for bound in (part.start, part.stop, part.step)):
                step = 1 if part.step is None else part.step
                starts.append((0 if step > 0 else -1) if part.start is None else part.start)
                ends.append((_LAST if step > 0 else _FIRST) if part.stop is None else part.stop)
                axes.append(axis)
                steps.append(step)
            place += 1
        elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
            starts.append(int(part))
            ends.append(int(part) + 1 if part != -1 else _LAST)
            axes.append(axis)
            steps.append(1)
            dropped.append(axis)
        elif picked is None and _is_integers(part):
            picked = axis, part
            place += 1
        else:
            raise InvalidArgumentError(
                "a traced tensor is indexed by integers, slices, None and ..., and by one tensor of integers",
                got=repr(part),
                hint="nn.functional.where chooses by a mask",
            )
        axis += 1
    if axes:
        bounds = [x.trace.shape([_bound(v) for v in values], x) for values in (starts, ends)]
        x = x.trace.add("Slice", x, *bounds, *(x.trace.constant(np.array(v, np.int64)) for v in (axes, steps)))
    if picked is not None:
        x = x.trace.add("Gather", x, x.trace.integers(picked[1]), axis=picked[0])
        extra = np.ndim(picked[1]) - 1 if not isinstance(picked[1], Base) else picked[1].ndim - 1
        dropped = [axis + extra if axis > picked[0] else axis for axis in dropped]
        if added and extra:
            raise InvalidArgumentError("None and a tensor of several dimensions do not go together in brackets")
    if dropped:
        x = x.trace.add("Squeeze", x, axes=dropped)
    if added:
        x = x.trace.add("Unsqueeze", x, axes=added)
    return x


def _bound(value: Any) -> Any:
    return value if isinstance(value, (Base, Extent)) else int(value)


def _is_integers(part: Any) -> bool:
    if isinstance(part, list):
        part = np.asarray(part)
    return isinstance(part, (np.ndarray, Base)) and part.dtype.kind in "iu"
