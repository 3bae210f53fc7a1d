"""The engines of a partition: one for each module that brings constants of its own."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from neurenix.torch.runner import Runner

#: Modules that share a graph have so many engines, at most.
MOST = 128


class Engines:
    """The runners of a partition, by the constants that they hold.

    torch compiles one graph for all modules of a class: the layers of a model whose `forward` breaks into graphs, or
    that are compiled one by one. Each call brings the constants of one of them.
    """

    def __init__(self) -> None:
        #: What the next one is made of.
        self.newest: Runner | None = None
        self._runners: dict[tuple[int, ...], tuple[Runner, list[weakref.ref[torch.Tensor]]]] = {}
        #: Those that calls found, by the state of the graph's constants.
        self._by_state: dict[object, Runner] = {}

    def __len__(self) -> int:
        return len(self._runners)

    def at(self, state: object) -> Runner | None:
        """The runner that is known to be for a state of the graph's constants."""
        return self._by_state.get(state)

    def remember(self, state: object, runner: Runner) -> None:
        """Says that a runner is for a state of the graph's constants."""
        if len(self._by_state) >= 2 * MOST:
            self._by_state.clear()
        self._by_state[state] = runner

    def of(self, args: Sequence[Any]) -> Runner | None:
        """The runner whose constants are those among the arguments, as they are now or were before."""
        if self.newest is None:
            return None
        runner, _ = self._runners.get(self.newest.addresses_of(args), (None, None))
        return runner

    def keep(self, runner: Runner, args: Sequence[Any]) -> None:
        """Takes a runner in, in the place of one for the same constants as they were before."""
        alive = [weakref.ref(constant) for constant in runner.constants(args)]
        old, _ = self._runners.pop(runner.addresses, (None, None))
        self._runners[runner.addresses] = runner, alive
        self.newest = runner
        if old is not None:
            self._forget(old)

    def drop_dead(self) -> list[Runner]:
        """Lets go of runners whose constants nobody else has any more, or that have other memory now; gives them."""
        dead = [key for key, (_, alive) in self._runners.items() if not _are_at(alive, key)]
        return [self._drop(key) for key in dead]

    def drop_oldest(self) -> None:
        """Makes room for another one."""
        if len(self._runners) >= MOST:
            self._drop(next(iter(self._runners)))

    def clear(self) -> None:
        """Lets go of all of them."""
        self.newest = None
        self._runners.clear()
        self._by_state.clear()

    def _drop(self, key: tuple[int, ...]) -> Runner:
        runner, _ = self._runners.pop(key)
        self._forget(runner)
        return runner

    def _forget(self, runner: Runner) -> None:
        # A call beside this one may read it.
        self._by_state = {state: kept for state, kept in self._by_state.items() if kept is not runner}


def _are_at(alive: Sequence[weakref.ref[torch.Tensor]], addresses: Sequence[int]) -> bool:
    constants = [one() for one in alive]
    return all(
        constant is not None and constant.data_ptr() == address
        for constant, address in zip(constants, addresses, strict=True)
    )
