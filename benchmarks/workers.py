"""Processes that survive from one job to the next: a unit that crashes or hangs costs no other one its result.

Workers are forked from a process that has imported the packages already; where a GPU can't be used in such a process,
each starts anew.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any

#: Finds something about each unit of a job, in order; what it says first is of the job as a whole.
Work = Callable[["Job", Any], Iterator[tuple[str, dict[str, Any]]]]
#: Makes a process ready, given its number; fails where it can't be used.
Start = Callable[[int, Any], None]


FORKED = "forkserver"


def preload(modules: list[str]) -> None:
    """Begins to import what workers have in common, in the process that they are forked from."""
    # Asking whether there is a GPU must not make the driver unusable in the processes that are forked.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    multiprocessing.set_forkserver_preload(modules)
    forkserver.ensure_running()


class Again(Exception):
    """This process is broken; the units that are left want another one."""


@dataclass
class Job:
    """Units of work that share what is prepared for them."""

    name: str
    units: list[str]
    #: What is known of the job already.
    known: dict[str, Any] = field(default_factory=dict)


def serve(pipe: Connection, number: int, start: Start, work: Work, options: Any) -> None:
    """What a worker does until it is told to stop: takes a job, sends what it finds."""
    try:
        start(number, options)
    except Exception as failure:
        pipe.send(("unusable", f"{type(failure).__name__}: {failure}"))
        return
    pipe.send(("ready", None))
    while (job := pipe.recv()) is not None:
        try:
            for unit, found in work(job, options):
                pipe.send(("found", (unit, found)))
            pipe.send(("done", None))
        except Again:
            pipe.send(("again", None))
            return
        except Exception as failure:
            pipe.send(("failed", f"{type(failure).__name__}: {failure}"[:500]))


class Worker:
    """A process and the job that it has."""

    def __init__(self, method: str, number: int, start: Start, work: Work, options: Any) -> None:
        context = multiprocessing.get_context(method)
        self.number, self.method = number, method
        self.pipe, other = context.Pipe()
        # Not `Process` of the module: its method is one for all.
        self.process: Any = context.Process(target=serve, args=(other, number, start, work, options), daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        other.close()
        self.job: Job | None = None
        self.begun = False
        self.since = time.monotonic()

    def give(self, job: Job) -> None:
        """Sends a job."""
        self.job, self.begun, self.since = job, False, time.monotonic()
        self.pipe.send(job)

    def message(self) -> tuple[str, Any]:
        """What it says; that it died, if it can't say anything."""
        try:
            kind, said = self.pipe.recv()
            return kind, said
        except (EOFError, OSError):
            self.process.join()
            return "died", f"the process ended with {self.process.exitcode}"

    def end(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Pool:
    """Some workers on a queue of jobs."""

    def __init__(self, start: Start, work: Work, options: Any) -> None:
        self.start, self.work, self.options = start, work, options
        self.method = FORKED
        self.workers: list[Worker] = []
        self.queue: deque[Job] = deque()

    def run(self, jobs: list[Job], count: int, timeout: float, end: float) -> Iterator[tuple[Job, str, dict[str, Any]]]:
        """Job, unit and what is found, as it comes; what is not there at `end` is left.

        Between two messages a worker has `timeout` seconds. A worker that dies or is late fails the unit it was at, or
        all units of the job if it had not begun with the first.
        """
        self.queue = deque(jobs)
        try:
            self.workers = [self.worker(number) for number in range(min(count, len(jobs)))]
            while self.workers and time.monotonic() < end:
                yield from self.turn(timeout, end)
        finally:
            for worker in self.workers:
                worker.end()
            self.workers = []

    def worker(self, number: int) -> Worker:
        """A new one."""
        return Worker(self.method, number, self.start, self.work, self.options)

    def turn(self, timeout: float, end: float) -> Iterator[tuple[Job, str, dict[str, Any]]]:
        """What the workers say next, and which of them are late."""
        now = time.monotonic()
        first = min([end, *(worker.since + timeout for worker in self.workers)])
        ready = wait([worker.pipe for worker in self.workers], max(first - now, 0))
        now = time.monotonic()
        for worker in list(self.workers):
            if worker.pipe in ready:
                yield from self.heard(worker, *worker.message())
            elif now > worker.since + timeout:
                yield from self.lost(worker, f"more than {timeout:.0f} s")

    def heard(self, worker: Worker, kind: str, said: Any) -> Iterator[tuple[Job, str, dict[str, Any]]]:
        """What a message means."""
        worker.since = time.monotonic()
        job = worker.job
        if kind == "found" and job is not None:
            unit, found = said
            worker.begun = True
            job.units = [other for other in job.units if other != unit]
            yield job, unit, found
        elif kind in ("ready", "done"):
            self.next(worker)
        elif kind == "failed" and job is not None:
            yield from self.fails(job, job.units, said)
            self.next(worker)
        elif kind == "again":
            self.replace(worker)
        elif kind == "unusable":
            self.unusable(worker, said)
        else:
            yield from self.lost(worker, str(said))

    def next(self, worker: Worker) -> None:
        """The next job, or the end."""
        worker.job = None
        if self.queue:
            worker.give(self.queue.popleft())
        else:
            self.workers.remove(worker)
            worker.end()

    def replace(self, worker: Worker) -> None:
        """Another process in its place; what is left of its job comes first."""
        self.workers.remove(worker)
        worker.end()
        if worker.job is not None and worker.job.units:
            self.queue.appendleft(worker.job)
        if self.queue:
            self.workers.append(self.worker(worker.number))

    def lost(self, worker: Worker, why: str) -> Iterator[tuple[Job, str, dict[str, Any]]]:
        """What a process that died or hangs leaves behind."""
        job = worker.job
        if job is None:
            raise RuntimeError(f"a worker can't start: {why}")
        yield from self.fails(job, job.units[:1] if worker.begun else job.units, why)
        self.replace(worker)

    def fails(self, job: Job, units: list[str], why: str) -> Iterator[tuple[Job, str, dict[str, Any]]]:
        """Units that come to nothing."""
        job.units = [unit for unit in job.units if unit not in units]
        for unit in units:
            yield job, unit, {"failed": why}

    def unusable(self, worker: Worker, why: str) -> None:
        """Processes that start anew, where one that was forked can't use the GPU."""
        if worker.method == "spawn":
            raise RuntimeError(f"a worker can't start: {why}")
        print(f"workers are not forked: {why}", file=sys.stderr, flush=True)
        self.method = "spawn"
        self.replace(worker)
