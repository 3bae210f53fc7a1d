"""Work that goes on beside the caller, bounded and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")

#: What its threads are called.
NAME = "neurenix-inference"


def in_order(
    function: Callable[[Item], Any], items: Iterable[Item], jobs: int
) -> Generator[tuple[Item, Any, Exception | None], None, None]:
    """Each item with what the function gave, or with what it raised, in the order of the items.

    At most `jobs` calls go on at once, and as many results wait at most. With `jobs` 1 the caller's thread does the
    work. When the caller stops, what has not begun is not done.
    """
    if jobs <= 1:
        for item in items:
            yield item, *_outcome(function, item)
        return
    pool = ThreadPoolExecutor(jobs, thread_name_prefix=NAME)
    waiting: deque[tuple[Item, Future[tuple[Any, Exception | None]]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(_outcome, function, item)))
            if len(waiting) > jobs:
                done, future = waiting.popleft()
                yield done, *future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, *future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _outcome(function: Callable[[Item], Any], item: Item) -> tuple[Any, Exception | None]:
    try:
        return function(item), None
    except Exception as error:
        return None, error
