"""Proofs that a loop writes the elements of a list in order from the first one, and all of them."""

from __future__ import annotations

from typing import Any

from neurenix.importers.tensorflow.lists.bodies import Body, Written
from neurenix.importers.tensorflow.lists.numbers import Number, number
from neurenix.importers.tensorflow.recurrent.reading import NoMatch, Reader
from neurenix.importers.tensorflow.recurrent.steps import Bounds


def in_order(graph: Any, loop: Any, body: Body, write: Written) -> bool:
    """Whether step i writes element i."""
    start = None if write.counter is None else _start(graph, loop, body, write.counter)
    return start is not None and start + write.offset == 0


def _start(graph: Any, loop: Any, body: Body, counter: int) -> int | None:
    """The number that a counter begins with, to which each step adds one; None where that isn't proven."""
    step = body.steps.get(counter)
    if step is None or (step.by is not None and _constant(graph, loop.input[step.by]) != 1):
        return None
    return _constant(graph, loop.input[counter])


def _constant(graph: Any, tensor: str) -> int | None:
    try:
        return int(Reader(graph).value(tensor))
    except NoMatch:
        return None


def all_written(graph: Any, loop: Any, body: Body, bounds: Bounds | None, count: str) -> bool:
    """Whether a loop that writes in order takes at least as many steps as a list has elements."""
    wanted = number(graph, count)
    if wanted.tensor is None and wanted.offset <= 0:
        return True
    limits = _limits(graph, loop, body, bounds)
    return bool(limits) and all(limit.tensor == wanted.tensor and limit.offset >= wanted.offset for limit in limits)


def _limits(graph: Any, loop: Any, body: Body, bounds: Bounds | None) -> list[Number]:
    """Numbers of which the smallest is that of the steps; none where these are not known."""
    found = []
    for counter, bound in bounds or []:
        start = _start(graph, loop, body, counter)
        if start is None or (isinstance(bound, int) and bound not in body.kept):
            return []
        end = Number(None, int(bound)) if isinstance(bound, str) else number(graph, loop.input[bound])
        found.append(Number(end.tensor, end.offset - start))
    if found and _constant(graph, loop.input[1]) != -1:
        found.append(number(graph, loop.input[1]))
    return found
