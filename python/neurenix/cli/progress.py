"""Tells on a terminal that something that takes long goes on. Nothing is written elsewhere, and nothing to stdout."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What is over before this many seconds is not told of.
PATIENCE = 2.0
#: Seconds between two looks.
PERIOD = 0.2

#: Terminals on which nothing that was written can be taken back: they get one line, which stays.
DUMB = ("", "dumb", "unknown")

#: Says how far the work is: from 0 to 1, and in words.
Tell = Callable[[float, str], None]


@contextmanager
def step(title: str) -> Iterator[Tell]:
    """Shows a line with the title while the work goes on. What it gives may be told how far it is."""
    if not sys.stderr.isatty():
        yield _silent
        return
    line = _Line(title)
    worker = threading.Thread(target=line.show, daemon=True)
    worker.start()
    try:
        yield line.tell
    finally:
        line.over.set()
        worker.join()


def _silent(share: float, words: str = "") -> None:
    """Nobody looks."""


class _Line:
    def __init__(self, title: str) -> None:
        self.title = title
        self.over = threading.Event()
        self.share: float | None = None
        self.words = ""
        self.begin = time.monotonic()

    def tell(self, share: float, words: str = "") -> None:
        self.share, self.words = min(max(share, 0.0), 1.0), words

    def show(self) -> None:
        if self.over.wait(PATIENCE):
            return
        if os.environ.get("TERM", "dumb").lower() in DUMB:
            sys.stderr.write(f"{self.title} ...\n")
            sys.stderr.flush()
            return
        try:
            self._show_with_rich()
        except ImportError:
            self._show_plainly()

    def _show_with_rich(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(
            *columns, TextColumn("{task.fields[words]}"), console=Console(stderr=True), transient=True
        ) as bar:
            task = bar.add_task(self.title, total=None, words="")
            bar.tasks[0].start_time = bar.get_time() - (time.monotonic() - self.begin)
            while not self.over.wait(PERIOD):
                known = self.share is not None
                bar.update(task, total=1.0 if known else None, completed=self.share or 0.0, words=self.words)

    def _show_plainly(self) -> None:
        width = 0
        while not self.over.wait(PERIOD):
            share = "" if self.share is None else f" {self.share:.0%}"
            text = f"{self.title}{share} {time.monotonic() - self.begin:.0f} s {self.words}".rstrip()
            sys.stderr.write("\r" + text.ljust(width))
            sys.stderr.flush()
            width = max(width, len(text))
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()
