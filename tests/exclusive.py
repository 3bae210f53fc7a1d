"""Tests that measure time run alone, though others run beside them (pytest-xdist)."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

#: The folder of the locks that all workers of a run share; their controller makes it.
FOLDER = "NEURENIX_TEST_LOCKS"


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="neurenix-test-locks-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if FOLDER in os.environ and not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(FOLDER))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if FOLDER not in os.environ:
        return (yield)
    how = fcntl.LOCK_SH if item.get_closest_marker("exclusive") is None else fcntl.LOCK_EX
    folder = Path(os.environ[FOLDER])
    with (folder / "queue").open("w") as queue, (folder / "running").open("w") as running:
        # Who waits to run alone holds the queue, so that the others can't take turns in front of it for ever.
        with _locked(queue, fcntl.LOCK_EX):
            fcntl.flock(running, how)
        with _unlocking(running):
            return (yield)


@contextmanager
def _locked(file: IO[str], how: int) -> Generator[None]:
    fcntl.flock(file, how)
    with _unlocking(file):
        yield


@contextmanager
def _unlocking(file: IO[str]) -> Generator[None]:
    """Unlocks at the end: closing the file does not where a process that a test forked has it, too."""
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
