"""Tests that measure time run alone, though others run beside them (pytest-xdist)."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

#: Under this name the controller of a run tells its workers the folder of the locks that they share.
FOLDER = "locks"
FOLDER_KEY = pytest.StashKey[str]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker, before it starts."""
    stash = node.config.stash
    if FOLDER_KEY not in stash:
        stash[FOLDER_KEY] = tempfile.mkdtemp(prefix="neurenix-test-locks-")
    node.workerinput[FOLDER] = stash[FOLDER_KEY]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes the folder, where all workers are done."""
    if FOLDER_KEY in config.stash:
        shutil.rmtree(config.stash[FOLDER_KEY])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Runs a test while no exclusive one runs, or alone."""
    told = getattr(item.config, "workerinput", {})
    if FOLDER not in told:
        return (yield)
    how = fcntl.LOCK_SH if item.get_closest_marker("exclusive") is None else fcntl.LOCK_EX
    folder = Path(told[FOLDER])
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
