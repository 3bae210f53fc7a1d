"""The engines of a partition: one for each module that brings constants of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from neurenix.torch.runner import Runner

_holders: Callable[[int], int] = torch._C._storage_Use_Count

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
        self._runners: dict[tuple[int, ...], Runner] = {}
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
        return None if self.newest is None else self._runners.get(self.newest.addresses_of(args))

    def keep(self, runner: Runner) -> None:
        """Takes a runner in, in the place of one for the same constants as they were before."""
        old = self._runners.pop(runner.addresses, None)
        self._runners[runner.addresses] = runner
        self.newest = runner
        if old is not None:
            self._forget(old)

    def drop_dead(self) -> list[Runner]:
        """Lets go of runners for memory of constants that nobody else holds any more; gives them.

        No weak reference says so: tensors that have one can't be swapped (`torch.utils.swap_tensors`).
        """
        storages = {key: [one.untyped_storage() for one in runner.held] for key, runner in self._runners.items()}
        # A storage that Python has in hand is held once more by that.
        own = Counter(storage._cdata for held in storages.values() for storage in held)
        alone = {storage for storage, held in own.items() if _holders(storage) <= held + 1}
        dead = [key for key, held in storages.items() if any(storage._cdata in alone for storage in held)]
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
        runner = self._runners.pop(key)
        self._forget(runner)
        return runner

    def _forget(self, runner: Runner) -> None:
        # A call beside this one may read it.
        self._by_state = {state: kept for state, kept in self._by_state.items() if kept is not runner}
