"""Finds which layers stand inside of which loops and conditionals."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.control_classes import (
    Block,
    IIfConditionalInputLayer,
    IIfConditionalOutputLayer,
    IIteratorLayer,
    ILoopOutputLayer,
    IRecurrenceLayer,
)
from neurenix.hardware.tensorrt.layer import ILayer, ITensor

#: What a network consists of: layers, and blocks in the place of all layers that they hold.
Node = ILayer | Block


class Structure:
    """What results need, each node behind those that it reads, by the innermost block that it stands in.

    A layer stands inside of a block if it depends on a recurrence, an iterator or an input of it, and a block inside of
    another one if anything that it needs does. What depends on none is computed once, outside.

    Raises `InvalidArgumentError` for what reads itself, and what the blocks raise that lack something.
    """

    def __init__(self, results: Iterable[ITensor]) -> None:
        self._before = _needed(results)
        self._places = {node: place for place, node in enumerate(_ordered(self._before))}
        self._inside: dict[Node, set[Block]] = {}
        self._held: dict[Block | None, list[Node]] = {}
        for node in self._places:
            self._inside[node] = self._around(node)
            self._held.setdefault(self._innermost(node), []).append(node)

    def held(self, block: Block | None, results: Iterable[ITensor]) -> list[Node]:
        """What stands in a block itself, or in none, and is needed for these of its tensors."""
        needed = {node for node in map(_producer, results) if node is not None}
        following = list(needed)
        while following:
            new = [node for node in self._before[following.pop()] if node not in needed]
            needed.update(new)
            following.extend(new)
        return [node for node in self._held.get(block, []) if node in needed]

    def _around(self, node: Node) -> set[Block]:
        """The blocks that a node depends on the inside of."""
        found = {node._block} if isinstance(node, (IIteratorLayer, IIfConditionalInputLayer)) else set[Block]()
        for tensor in _reads(node):
            source = _producer(tensor)
            if source is not None:
                found |= self._inside[source]
            elif isinstance(tensor._layer, IRecurrenceLayer):
                found.add(tensor._layer._block)
        return {block for block in found if block is not node}

    def _innermost(self, node: Node) -> Block | None:
        """Of blocks in one another the innermost comes first: the others need what it gives."""
        return min(self._inside[node], key=lambda block: self._places.get(block, len(self._places)), default=None)


def _needed(results: Iterable[ITensor]) -> dict[Node, list[Node]]:
    """Everything that results depend on, each with what it reads."""
    before: dict[Node, list[Node]] = {}
    following = [node for node in map(_producer, results) if node is not None]
    while following:
        node = following.pop()
        if node not in before:
            before[node] = [source for source in map(_producer, _reads(node)) if source is not None]
            following.extend(before[node])
    return before


def _ordered(before: dict[Node, list[Node]]) -> list[Node]:
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        names = list(dict.fromkeys(node.name for node in error.args[1]))
        raise InvalidArgumentError(
            "what a loop or conditional gives is read inside of it",
            layer=names[0],
            got=", ".join(names),
            hint="inside of a loop read the output of its recurrence",
        ) from None


def _producer(tensor: ITensor) -> Node | None:
    """What gives a tensor; None for inputs, constants of a model, and recurrences, with which a body begins."""
    layer = tensor._layer
    if isinstance(layer, (ILoopOutputLayer, IIfConditionalOutputLayer)):
        return layer._block
    return None if isinstance(layer, IRecurrenceLayer) else layer


def _reads(node: Node) -> list[ITensor]:
    if isinstance(node, ILayer):
        return [tensor for tensor in node._inputs if tensor is not None]
    return node._reads()
