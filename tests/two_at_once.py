"""Processes of a module's tests, two at once: most of their time is imports, on one core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

Value = TypeVar("Value")
Result = TypeVar("Result")


@contextmanager
def started(
    request: pytest.FixtureRequest, parameter: str, job: Callable[[Value, Path], Result]
) -> Iterator[Callable[[Value], Result]]:
    """Starts a job in a folder of its own for each value of a parameter that the module's tests have which ask for this
    fixture; gives what waits for one."""
    items = [item for item in request.session.items if item.path == request.path]
    asked = [item.callspec.params[parameter] for item in items if request.fixturename in item.fixturenames]
    folders = request.getfixturevalue("tmp_path_factory")
    with ThreadPoolExecutor(2) as pool:
        futures = {value: pool.submit(job, value, folders.mktemp(parameter)) for value in dict.fromkeys(asked)}
        yield lambda value: futures[value].result()
        # Of a run that ends early.
        pool.shutdown(cancel_futures=True)
