"""Works beside each other."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_threads(works: list[Callable[[], None]]) -> None:
    """Runs each in a thread of its own; raises what the first of them that fails raises."""
    failures: list[BaseException] = []

    def caught(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=caught, args=(work,)) for work in works]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
