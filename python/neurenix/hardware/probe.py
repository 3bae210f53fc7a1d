"""Which providers can run here, and what the others lack."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from neurenix import _native
from neurenix.log import LOG


@dataclass(frozen=True)
class State:
    """Whether a provider can run here, and why not."""

    provider: str
    reason: str | None = None

    @property
    def available(self) -> bool:
        """Whether it can run here."""
        return self.reason is None

    @property
    def cause(self) -> str:
        """The reason in a line; where everything was looked for stands in `neurenix info`."""
        return (self.reason or "").partition("\n")[0]

    @property
    def hint(self) -> str:
        """What the reason says to do about it; empty where it says nothing."""
        return (self.reason or "").partition("hint: ")[2]


@cache
def state(provider: str, device: int = 0) -> State:
    """The state of a provider on this machine, on the GPU of this number."""
    states = dict(_native.provider_states(device))
    return State(provider, states.get(provider, f"there is no provider {provider!r}"))


def choose(wanted: Sequence[str], device: int = 0) -> tuple[list[str], list[State]]:
    """Of the wanted providers those that can run here, on the GPU of this number, and the states of the others."""
    states = [state(provider, device) for provider in wanted]
    return [s.provider for s in states if s.available], [s for s in states if not s.available]


_told: set[tuple[int, str, tuple[State, ...]]] = set()


def tell(chosen: Sequence[str], refused: Sequence[State], asked: str | None) -> None:
    """Logs a fall back, once: as a warning where `asked`, the provider that the user named first, is not the one that
    runs, or where a GPU that is there stays idle; else as information.
    """
    if not refused or not chosen:
        return
    lost = asked not in (None, chosen[0]) or (chosen[0] == "cpu" and has_gpu())
    level = logging.WARNING if lost else logging.INFO
    key = (level, chosen[0], tuple(refused))
    if key in _told or not LOG.isEnabledFor(level):
        return
    _told.add(key)
    reasons = ", ".join(f"not on {s.provider}: {s.cause}" for s in refused)
    LOG.log(level, "running on %s; %s", chosen[0], reasons)


def has_gpu() -> bool:
    """Whether this machine has a GPU of NVIDIA's, be it one that nothing here can use."""
    return _native.gpu_count() > 0 or os.path.exists("/dev/nvidiactl")
