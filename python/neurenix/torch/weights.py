"""Watches the parameters and buffers of a graph: whoever changes them changes what its engines must compute."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_pointer: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr
_version: Callable[[torch.Tensor], int] = operator.attrgetter("_version")


def stamps(weights: Sequence[torch.Tensor], frozen: bool = False) -> list[tuple[int, int]]:
    """For each tensor its address, and how often something was written into it; 0 where that does not count."""
    return [(_pointer(weight), 0 if frozen else _version(weight)) for weight in weights]


@dataclass(frozen=True, eq=False)
class State:
    """The constants of a graph as a call found them."""

    pointers: list[int]
    versions: list[int]


class Weights:
    """The constants of a graph: tensors of which torch counts what is written into them.

    torch calls one graph for all modules of a class, from several threads, so that a call has to say whose constants it
    brings. `frozen`: what is written into them does not count, only which tensors they are.
    """

    def __init__(self, places: Sequence[int], frozen: bool = False) -> None:
        self._places = tuple(places)
        self._frozen = frozen
        self._pick: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        self._last = State([], [])

    def look(self, args: Sequence[Any]) -> State:
        """The constants among the arguments of a call; the same object as long as nothing changes."""
        pick = self._pick or self._start(args)
        weights = pick(args)
        versions = [] if self._frozen else list(map(_version, weights))
        pointers = list(map(_pointer, weights))
        last = self._last
        if versions != last.versions or pointers != last.pointers:
            last = self._last = State(pointers, versions)
        return last

    def _start(self, args: Sequence[Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
        # Tensors of inference mode have no count: engines take them as inputs.
        self._pick = picker([place for place in self._places if not args[place].is_inference()])
        return self._pick


def picker(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that takes what stands at these places out of a sequence."""
    if not places:
        return lambda args: ()
    if len(places) == 1:
        return lambda args: (args[places[0]],)
    return operator.itemgetter(*places)
