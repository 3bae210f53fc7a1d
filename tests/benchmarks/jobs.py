"""What workers run in the tests: each unit says what happens in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.workers import FORKED, Again, Job


def start(number: int, options: Any) -> None:
    """A worker that is ready at once; `options` names the methods whose processes are of no use."""
    import multiprocessing

    forked = type(multiprocessing.current_process()).__name__ == "ForkServerProcess"
    if forked and FORKED in options:
        raise RuntimeError("no GPU here")


def work(job: Job, options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Says what it knows, then finds a process id for each unit."""
    if job.name == "refused":
        raise ValueError("no such model")
    if job.name == "crashes at once":
        os._exit(3)
    yield "known", {"known": job.known}
    for unit in list(job.units):
        if unit == "dies":
            os._exit(7)
        if unit == "hangs":
            time.sleep(600)
        yield unit, {"process": os.getpid()}
        if unit == "breaks":
            raise Again
