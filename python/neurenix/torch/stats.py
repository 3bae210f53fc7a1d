"""What was compiled, what of it runs in engines, and what fell back: for people and for tests."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from neurenix.log import LOG
from neurenix.torch.graphs import Refusal

#: Things that happened in this process, by name.
_COUNTERS: Counter[str] = Counter()
_LOCK = threading.Lock()
_GRAPHS: list[weakref.ref[GraphReport]] = []


def count(name: str, by: int = 1) -> None:
    """Adds to a counter."""
    with _LOCK:
        _COUNTERS[name] += by


def counters() -> dict[str, int]:
    """How often things happened in this process.

    `graphs` compiled, of those `training` given back to torch; `partitions`, `engines_built`, `engines_from_cache`,
    `refits`, `rebuilds` because of weights that can't be refitted, `fallbacks` of partitions to torch.
    """
    with _LOCK:
        return dict(_COUNTERS)


@dataclass
class PartitionReport:
    """One partition: its operations, and how it runs."""

    name: str
    operations: int
    #: "waiting" for the first call, "engine", or "torch".
    runs: str = "waiting"
    #: Why it runs in torch.
    reason: str | None = None
    from_cache: bool = False
    build_seconds: float = 0.0
    refits: int = 0
    calls: int = 0
    #: Of all calls, in nanoseconds; on a GPU, until the work was enqueued.
    nanoseconds: int = 0


@dataclass(eq=False)
class GraphReport:
    """One graph that torch handed over: what runs where, and why."""

    name: str
    operations: int
    partitions: list[PartitionReport] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    #: Why all of it runs in torch.
    given_back: str | None = None
    calls: int = 0
    nanoseconds: int = 0

    @property
    def share(self) -> float:
        """The share of the time of all calls that engines took; 0.0 before the first."""
        inside = sum(part.nanoseconds for part in self.partitions if part.runs == "engine")
        return inside / self.nanoseconds if self.nanoseconds else 0.0

    def __str__(self) -> str:
        head = f"{self.name}: {self.operations} operations, {self.calls} calls, {self.share:.0%} of the time in engines"
        rows = [head]
        if self.given_back:
            rows.append(f"  runs in torch: {self.given_back}")
        for part in self.partitions:
            why = f": {part.reason}" if part.reason else " from the cache" if part.from_cache else ""
            rows.append(f"  {part.name}: {part.operations} operations, {part.runs}{why}")
        grouped = Counter((one.operator, one.reason) for one in self.refusals)
        rows += [f"  torch runs {number} x {op}: {reason}" for (op, reason), number in grouped.most_common()]
        return "\n".join(rows)

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "name": self.name,
            "operations": self.operations,
            "calls": self.calls,
            "share": self.share,
            "given_back": self.given_back,
            "partitions": [vars(part).copy() for part in self.partitions],
            "refusals": [vars(one).copy() for one in self.refusals],
        }


def add(report: GraphReport) -> None:
    """Takes a graph into `reports`, as long as it lives."""
    with _LOCK:
        _GRAPHS[:] = [one for one in _GRAPHS if one() is not None]
        _GRAPHS.append(weakref.ref(report))
        _COUNTERS["graphs"] += 1


def tell(report: GraphReport, path: bool | str) -> None:
    """Writes what would run where to a file, or to the log."""
    if isinstance(path, str):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{report}\n")
    else:
        LOG.warning("%s", report)


def discard(report: GraphReport) -> None:
    """Takes a graph out again."""
    with _LOCK:
        _GRAPHS[:] = [one for one in _GRAPHS if one() not in (None, report)]
        _COUNTERS["graphs"] -= 1


def reports() -> list[GraphReport]:
    """The graphs that are compiled in this process and still in use, in the order in which they came."""
    with _LOCK:
        return [found for found in (one() for one in _GRAPHS) if found is not None]


def reset() -> None:
    """Sets the counters to zero and forgets the graphs."""
    with _LOCK:
        _COUNTERS.clear()
        _GRAPHS.clear()
