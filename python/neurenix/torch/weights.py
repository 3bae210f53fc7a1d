"""Watches the parameters and buffers of a graph: whoever changes them changes what its engines must compute."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

_pointer: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr
_version: Callable[[torch.Tensor], int] = operator.attrgetter("_version")


def stamps(weights: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """For each tensor its address, and how often something was written into it."""
    return list(zip(map(_pointer, weights), map(_version, weights), strict=True))


class Weights:
    """The constants of a graph: tensors of which torch counts what is written into them.

    `epoch` is another number when one of them is another tensor, or has been written to.
    """

    def __init__(self, places: Sequence[int]) -> None:
        self._places = tuple(places)
        self._pick: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        self._versions: list[int] = []
        self._pointers: list[int] = []
        self._lock = threading.Lock()
        self.epoch = 0

    def look(self, args: Sequence[Any]) -> None:
        """Looks at the constants among the arguments of a call."""
        pick = self._pick or self._start(args)
        weights = pick(args)
        versions = list(map(_version, weights))
        pointers = list(map(_pointer, weights))
        if versions == self._versions and pointers == self._pointers:
            return
        with self._lock:
            if versions != self._versions or pointers != self._pointers:
                self._versions, self._pointers = versions, pointers
                self.epoch += 1

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
