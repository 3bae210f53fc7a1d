"""How much memory this process may still take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Where control groups are mounted.
ROOT = Path("/sys/fs/cgroup")
#: What is told where nothing else is known, and the least that is told.
GUESS, LEAST = 1 << 30, 1 << 26


def free() -> float:
    """Bytes that this process may still take: of the machine, or of the control groups that it is in."""
    return max(min([_of_machine(), *map(_of_group, _groups())]), LEAST)


def _of_machine() -> float:
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable:"))
    return GUESS


def _groups() -> Iterator[Path]:
    """The folders of the groups with a say about this process's memory: its own, and those around it."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base = ROOT / "memory" if controllers else ROOT
            # Inside of a container the path may be that of the machine outside: then there is just the base.
            own = base / path.strip("/")
            yield from (own, *(p for p in own.parents if p == base or base in p.parents))


def _of_group(folder: Path) -> float:
    """What a group has left, of version 2 or 1; without an end where it has no limit."""
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        with suppress(OSError, ValueError):
            return int((folder / limit).read_text()) - int((folder / usage).read_text()) + _cached(folder)
    return float("inf")


def _cached(folder: Path) -> int:
    """Bytes of files that the system takes away before anything else."""
    with suppress(OSError, ValueError):
        rows = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return int(rows.get("total_inactive_file", rows.get("inactive_file", 0)))
    return 0
