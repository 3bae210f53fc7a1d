"""The body of a loop over the items of a sequence: where it has the cell's parts, and what a mask does to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neurenix.importers.tensorflow.recurrent.cells import Cell, cell
from neurenix.importers.tensorflow.recurrent.linear import Sums
from neurenix.importers.tensorflow.recurrent.reading import NoMatch, need


@dataclass
class Mask:
    """The input that has the masks, that with what hidden steps give, and whether they repeat the output before."""

    items: int
    otherwise: int
    repeat: bool


@dataclass
class Body:
    """A body: the cell, numbers of inputs, and whether each step is written or only the last one is."""

    cell: Cell
    items: int
    time: int
    written: int
    every: bool
    states: list[int]
    weights: set[int]
    counters: set[int]
    mask: Mask | None


def body(graph: Any) -> Body:
    """What a graph is as the body of a loop. Raises `NoMatch` where a cell's output isn't all that it computes."""
    writes = [node for node in graph.get_nodes() if node.type == "TensorListSetItem"]
    need(len(writes) == 1 and len(graph.outputs) == len(graph.input_names))
    sums, (write,) = Sums(graph), writes
    written = sums.number(write.input[0])
    need(sums.root(graph.outputs[written]) == write.output[0])
    output, chosen = _unmasked(sums, write.input[2])
    found = cell(sums, output)
    items, time = _read(sums, found.item)
    states = [sums.number(before) for _, before in found.states]
    mask = None if chosen is None else _mask(sums, chosen, write.input[2], time)
    for number, (after, before) in zip(states, found.states, strict=True):
        _check_state(sums, graph.outputs[number], after, before, chosen)
    every = sums.root(write.input[1]) == graph.input_names[time]
    need(every or int(sums.value(write.input[1])) == 0)
    counters = {number for number in range(len(graph.outputs)) if sums.counts(number)}
    return Body(found, items, time, written, every, states, set(sums.used), counters, mask)


def _unmasked(sums: Sums, tensor: str) -> tuple[str, Any]:
    """The output of the cell, and the SelectV2 behind it if there is one."""
    node = sums.node(tensor)
    if node.type != "SelectV2":
        return sums.root(tensor), None
    return sums.root(node.input[1]), node


def _read(sums: Sums, tensor: str) -> tuple[int, int]:
    """The inputs that have the items and the number of the step, of what reads an item."""
    read = sums.of(tensor, "TensorListGetItem")
    items, time = sums.number(read.input[0]), sums.number(read.input[1])
    need(sums.kept(items) and sums.counts(time))
    return items, time


def _mask(sums: Sums, chosen: Any, output: str, time: int) -> Mask:
    items, other = _read(sums, chosen.input[0])
    need(other == time)
    otherwise = sums.number(chosen.input[2])
    repeat = sums.root(sums.graph.outputs[otherwise]) == sums.root(output)
    need(repeat or sums.kept(otherwise))
    return Mask(items, otherwise, repeat)


def _check_state(sums: Sums, given: str, after: str, before: str, chosen: Any) -> None:
    """Raises `NoMatch` unless the next step gets the new state, or under a mask the new one or that before."""
    if chosen is None:
        need(sums.root(given) == after)
        return
    node = sums.of(given, "SelectV2")
    need([sums.root(name) for name in node.input] == [sums.root(chosen.input[0]), after, before])


def recorded(graph: Any, name: str, find: Any) -> None:
    """Keeps what is found in a graph with it: it is gone when the loop's own graph is read."""
    try:
        setattr(graph, name, find(graph))
    except NoMatch:
        # A loop over such a graph is not replaced.
        pass
