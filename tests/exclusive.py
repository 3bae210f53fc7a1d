"""Tests that measure time run alone, though others run beside them (pytest-xdist)."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

#: Under this name the controller of a run tells its workers the folder of the locks that they share.
FOLDER = "locks"
FOLDER_KEY = pytest.StashKey[str]()
LOCKS_KEY: pytest.StashKey[Locks] = pytest.StashKey()


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
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Runs a test while no exclusive one runs, or alone; exclusive ones in a row wait for others but once."""
    if FOLDER not in getattr(item.config, "workerinput", {}):
        return (yield)
    stash = item.config.stash
    if LOCKS_KEY not in stash:
        stash[LOCKS_KEY] = Locks(Path(item.config.workerinput[FOLDER]))
    locks = stash[LOCKS_KEY]
    alone = _is_exclusive(item)
    locks.enter(alone)
    try:
        return (yield)
    finally:
        if not (alone and nextitem is not None and _is_exclusive(nextitem)):
            locks.leave()


def _is_exclusive(item: pytest.Item) -> bool:
    return item.get_closest_marker("exclusive") is not None


class Locks:
    """A worker's hold on the others."""

    def __init__(self, folder: Path) -> None:
        self._queue = (folder / "queue").open("w")
        self._running = (folder / "running").open("w")
        self._entered = False

    def enter(self, alone: bool) -> None:
        """Waits until an exclusive test is done, or until all are; nothing where it has not left."""
        if self._entered:
            return
        # Who waits to run alone holds the queue, so that the others can't take turns in front of it for ever.
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        self._entered = True

    def leave(self) -> None:
        """Unlocks: that a process which a test forked has the file, too, keeps nobody waiting."""
        fcntl.flock(self._running, fcntl.LOCK_UN)
        self._entered = False
