"""The memory of this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def free_memory() -> float:
    """Bytes that this process may still take: of the machine, or of the control group that it is in."""
    with open("/proc/meminfo", encoding="utf-8") as lines:
        rows = (line.split() for line in lines)
        free = next((int(row[1]) * 1024 for row in rows if row[0] == "MemAvailable:"), 1 << 30)
    folder = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        free = min(free, int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()))
    return max(free, 1 << 26)
