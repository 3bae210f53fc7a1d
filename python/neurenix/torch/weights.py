"""Watches the parameters and buffers of a graph: whoever changes them changes what its engines must compute."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from neurenix import _native

_pointer: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr
_version: Callable[[torch.Tensor], int] = operator.attrgetter("_version")

#: A tensor's address, how often something was written into it, and what a few of its elements come to: what is written
#: through `.data` counts nowhere (PEFT merges LoRA so), and shows there.
Stamp = tuple[int, int, int]

#: Of so many modules that share a graph the last state is known.
_KEPT = 256


def stamps(weights: Sequence[torch.Tensor], frozen: bool = False) -> list[Stamp]:
    """The stamp of each tensor; its address alone where it is frozen."""
    pointers = list(map(_pointer, weights))
    if frozen:
        return [(pointer, 0, 0) for pointer in pointers]
    samples = _native.fingerprints(pointers, list(map(_readable, weights)))
    return list(zip(pointers, map(_version, weights), samples, strict=True))


def _readable(weight: torch.Tensor) -> int:
    """The bytes at the address of a tensor that are its own; none on a GPU, whose memory no processor reads."""
    if weight.device.type != "cpu" or weight.layout != torch.strided or weight.numel() == 0:
        return 0
    reach = 1 + sum((size - 1) * stride for size, stride in zip(weight.shape, weight.stride(), strict=True))
    return min(reach, weight.numel()) * weight.element_size()


def _sizes(weights: Sequence[torch.Tensor]) -> list[int]:
    """The readable bytes of each; empty where none has any, as on a GPU."""
    sizes = list(map(_readable, weights))
    return sizes if any(sizes) else []


@dataclass(frozen=True, eq=False)
class State:
    """The constants of a graph as a call found them."""

    pointers: tuple[int, ...]
    versions: list[int]
    samples: list[int]
    #: How many bytes of each are looked at; empty where that is none of any.
    sizes: list[int]


class Weights:
    """The constants of a graph: tensors of which torch counts what is written into them.

    torch calls one graph for all modules of a class, from several threads, so that a call has to say whose constants it
    brings. `frozen`: what is written into them does not count, only which tensors they are.
    """

    def __init__(self, places: Sequence[int], frozen: bool = False) -> None:
        self._places = tuple(places)
        self._frozen = frozen
        self._pick: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        self._last = State((), [], [], [])
        #: By the addresses of the constants, how they were found last.
        self._states: dict[tuple[int, ...], State] = {}
        #: What the next call found behind a state.
        self._next: dict[State, State] = {}

    @property
    def expected(self) -> State | None:
        """What `look` is likely to give: what it gave last behind what it gave just now; `None` where that is new."""
        return self._next.get(self._last)

    def look(self, args: Sequence[Any]) -> State:
        """The constants among the arguments of a call; the same object as long as nothing changes."""
        found = self._look(args)
        if len(self._next) >= _KEPT:
            self._next.clear()
        self._next[self._last] = found
        self._last = found
        return found

    def _look(self, args: Sequence[Any]) -> State:
        pick = self._pick or self._start(args)
        weights = pick(args)
        pointers = tuple(map(_pointer, weights))
        known = self._states.get(pointers)
        if self._frozen:
            return known or self._keep(State(pointers, [], [], []))
        versions = list(map(_version, weights))
        sizes = known.sizes if known else _sizes(weights)
        samples = _native.fingerprints(pointers, sizes) if sizes else []
        if known and versions == known.versions and samples == known.samples:
            return known
        return self._keep(State(pointers, versions, samples, sizes))

    def _keep(self, state: State) -> State:
        if len(self._states) >= _KEPT:
            self._states.clear()
        self._states[state.pointers] = state
        return state

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
