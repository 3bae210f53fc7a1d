"""Requests for one version of a model: a bounded queue by priority, and batches of what waits."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np

from neurenix.errors import UnsupportedError
from neurenix.serve.parameters import LOWEST
from neurenix.serve.spec import Array, Request, Spec
from neurenix.serve.statistics import Statistics
from neurenix.serve.status import Refused, Status, refusal

Arrays = dict[str, Array]
Run = Callable[[Arrays], Arrays]

#: How much the time between two requests counts in the mean of those times, and how many delays at most.
_NEWEST, _PAUSE = 0.2, 4


@dataclass(frozen=True)
class Limits:
    """How requests wait. `max_delay_s`: how long one may wait for others while an instance is idle.

    `rows`: how many rows of several requests are put together.
    """

    instances: int = 1
    rows: int = 1
    max_queue: int = 256
    max_delay_s: float = 0.0
    default_timeout_us: int = 0


@dataclass(slots=True, eq=False)
class _Item:
    request: Request
    future: asyncio.Future[Arrays]
    arrived: int
    started: int = 0


@dataclass(slots=True)
class _Batch:
    items: list[_Item]
    rows: int


@dataclass(slots=True)
class _Done:
    """What came of an execution: outputs or an error for each item, and nanoseconds of its three parts."""

    items: list[_Item]
    outcomes: list[Arrays | BaseException]
    times: tuple[int, int, int]


class Batcher:
    """Runs requests on some threads, one execution at a time each.

    An execution takes all requests that wait and fit together: those that came while the instances were busy. A request
    that finds an idle instance runs at once, or with `max_delay_s` waits that long at most, if the rate at which
    requests come says that another one is to be expected meanwhile.

    Everything but the threads' work belongs to the event loop that made it.
    """

    def __init__(self, run: Run, spec: Spec, statistics: Statistics, limits: Limits, name: str) -> None:
        self._run = run
        self._spec = spec
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.statistics = statistics
        self._levels: list[deque[_Item]] = [deque() for _ in range(LOWEST + 1)]
        self._queued = 0
        self._items: set[_Item] = set()
        self._idle = limits.instances
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._timer: asyncio.TimerHandle | None = None
        self._last_arrival: float | None = None
        self._between = math.inf
        self._work: SimpleQueue[_Batch | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"neurenix-serve-{name}", daemon=True)
            for _ in range(limits.instances)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pending(self) -> int:
        """Requests that wait."""
        return self._queued

    @property
    def open(self) -> int:
        """Requests that wait or run."""
        return len(self._items)

    async def infer(self, request: Request) -> Arrays:
        """The outputs of a request.

        Raises `Refused` when the queue is full, the deadline passes or this is closed, and what the model raises. A
        call that is cancelled takes its request out of the queue; an execution that is on its way ends first.
        """
        arrived = time.monotonic_ns()
        self._admit(request, arrived)
        item = _Item(request, self._loop.create_future(), arrived)
        self._levels[request.priority].append(item)
        self._queued += 1
        self._items.add(item)
        self._empty.clear()
        timer = self._loop.call_later(max(0.0, request.deadline - arrived / 1e9), self._expire, item) \
            if request.deadline is not None else None  # fmt: skip
        self._measure_rate(arrived / 1e9)
        self._dispatch()
        try:
            return await item.future
        except asyncio.CancelledError:
            self._take_back(item)
            self._count_failure("CANCELED", item)
            raise
        except BaseException as error:
            self._count_failure("BACKEND" if item.started and not isinstance(error, Refused) else "OTHER", item)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._items.discard(item)
            if not self._items:
                self._empty.set()

    def _admit(self, request: Request, now: int) -> None:
        if self._closed:
            raise Refused(Status.UNAVAILABLE, "this version of the model is being unloaded", retry_after=1)
        if request.deadline is not None and request.deadline * 1e9 <= now:
            self.statistics.failed("REJECTED", 0)
            raise Refused(Status.TIMEOUT, "the request's timeout passed before it was queued")
        if self._queued >= self._limits.max_queue:
            self.statistics.failed("REJECTED", 0)
            raise Refused(
                Status.FULL, "the queue of this model is full", expected=f"at most {self._limits.max_queue} requests",
                hint="try again later, or raise --max-queue", retry_after=self._seconds_to_clear(),
            )  # fmt: skip

    def _seconds_to_clear(self) -> int:
        """How long the queue takes at the pace so far, between 1 and 60 seconds."""
        done, infer = self.statistics.success.count, self.statistics.compute_infer.ns
        if not done:
            return 1
        batch = max(1.0, self.statistics.inferences / max(1, self.statistics.executions))
        seconds = self._queued * (infer / done) / 1e9 / batch / self._limits.instances
        return int(min(60, max(1, math.ceil(seconds))))

    def _count_failure(self, reason: str, item: _Item) -> None:
        self.statistics.failed(reason, time.monotonic_ns() - item.arrived)

    def _take_back(self, item: _Item) -> None:
        if not item.started:
            with contextlib.suppress(ValueError):
                self._levels[item.request.priority].remove(item)
                self._queued -= 1

    def _expire(self, item: _Item) -> None:
        if not item.future.done():
            self._take_back(item)
            where = "while it ran" if item.started else "in the queue"
            item.future.set_exception(Refused(Status.TIMEOUT, f"the request's timeout passed {where}"))

    def _measure_rate(self, now: float) -> None:
        before, self._last_arrival = self._last_arrival, now
        if before is None:
            return
        # A pause says no more than that nothing came for as long as requests wait.
        between = min(now - before, _PAUSE * self._limits.max_delay_s)
        if math.isinf(self._between):
            self._between = between
        else:
            self._between += _NEWEST * (between - self._between)

    def _dispatch(self) -> None:
        """Gives idle instances what waits."""
        while self._idle and self._queued:
            if (wait := self._worth_waiting()) > 0:
                if self._timer is None:
                    self._timer = self._loop.call_later(wait, self._waited)
                return
            self._cancel_timer()
            self._start(self._next_batch())

    def _waited(self) -> None:
        self._timer = None
        self._dispatch()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _worth_waiting(self) -> float:
        """Seconds that the oldest request still waits for others; 0 where nothing would come of it."""
        if self._limits.max_delay_s <= 0 or not self._spec.max_batch or self._closed:
            return 0.0
        heads = [level[0] for level in self._levels if level]
        left = self._limits.max_delay_s - (time.monotonic_ns() - min(head.arrived for head in heads)) / 1e9
        rows = sum(item.request.rows for level in self._levels for item in level)
        return left if rows < self._limits.rows and self._between <= left else 0.0

    def _next_batch(self) -> _Batch:
        """The first request by priority and age, and those that fit together with it."""
        items: list[_Item] = []
        rows = 0
        key: tuple[tuple[int, ...], ...] = ()
        for level in self._levels:
            skipped: list[_Item] = []
            while level:
                item = level[0]
                if items and (not self._spec.max_batch or rows + item.request.rows > self._limits.rows):
                    break
                level.popleft()
                if items and self._key(item) != key:
                    skipped.append(item)
                    continue
                key = key or self._key(item)
                items.append(item)
                rows += item.request.rows
            level.extendleft(reversed(skipped))
        return _Batch(items, rows)

    def _key(self, item: _Item) -> tuple[tuple[int, ...], ...]:
        """What requests of one execution have in common: all extents but the batch."""
        return tuple(item.request.inputs[tensor.name].shape[1:] for tensor in self._spec.inputs)

    def _start(self, batch: _Batch) -> None:
        now = time.monotonic_ns()
        for item in batch.items:
            item.started = now
        self._queued -= len(batch.items)
        self._idle -= 1
        self._work.put(batch)

    def _serve(self) -> None:
        """What a thread does: executions, until there is None."""
        while (batch := self._work.get()) is not None:
            done = _execute(self._run, self._spec, batch.items)
            try:
                self._loop.call_soon_threadsafe(self._finish, done, batch.rows)
            except RuntimeError:
                return  # The loop is closed: nobody waits.
            del batch, done

    def _finish(self, done: list[_Done], rows: int) -> None:
        self._idle += 1
        now = time.monotonic_ns()
        for part in done:
            if not any(isinstance(outcome, BaseException) for outcome in part.outcomes):
                self.statistics.executed(sum(item.request.rows for item in part.items), *part.times)
            for item, outcome in zip(part.items, part.outcomes, strict=True):
                if item.future.done():
                    continue
                if isinstance(outcome, BaseException):
                    item.future.set_exception(outcome)
                    continue
                self.statistics.answered(
                    item.request.rows, now - item.arrived, item.started - item.arrived, part.times
                )  # fmt: skip
                item.future.set_result(outcome)
        self._dispatch()

    async def close(self, timeout: float | None = None) -> bool:
        """Takes no more requests, waits until those that are there are answered, and ends the threads.

        After `timeout` seconds what still waits or runs is refused; gives whether all were answered.
        """
        self._closed = True
        self._cancel_timer()
        # What waited for others has nothing to wait for any more.
        self._dispatch()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout)
        clean = not self._items
        for level in self._levels:
            self._queued -= len(level)
            level.clear()
        for item in list(self._items):
            if not item.future.done():
                item.future.set_exception(Refused(Status.UNAVAILABLE, "the model is being unloaded", retry_after=1))
        for _ in self._threads:
            self._work.put(None)
        return clean


def _execute(run: Run, spec: Spec, items: list[_Item]) -> list[_Done]:
    """Runs requests together; where that fails, each alone, so that an error meets none but its own request."""
    live = [item for item in items if not item.future.done()]
    if not live:
        return []
    try:
        return [_together(run, spec, live)]
    except BaseException as error:
        if len(live) == 1:
            failure = error if isinstance(error, Exception) else refusal(error)
            return [_Done(live, [failure], (0, 0, 0))]
    return [done for item in live for done in _execute(run, spec, [item])]


def _together(run: Run, spec: Spec, items: list[_Item]) -> _Done:
    begin = time.monotonic_ns()
    if len(items) == 1:
        inputs = items[0].request.inputs
    else:
        inputs = {
            tensor.name: np.concatenate([item.request.inputs[tensor.name] for item in items]) for tensor in spec.inputs
        }
    ready = time.monotonic_ns()
    outputs = run(inputs)
    ran = time.monotonic_ns()
    found: list[Arrays | BaseException] = list(_split(outputs, items))
    return _Done(items, found, (ready - begin, ran - ready, time.monotonic_ns() - ran))


def _split(outputs: Arrays, items: list[_Item]) -> list[Arrays]:
    """The outputs of each request."""
    if len(items) == 1:
        return [{name: outputs[name] for name in items[0].request.outputs}]
    total = sum(item.request.rows for item in items)
    for name, array in outputs.items():
        if not array.shape or array.shape[0] != total:
            raise UnsupportedError(
                "an output does not have a row for each row of the input", tensor=name, expected=f"[{total}, ...]",
                got=str(list(array.shape)), hint="serve the model without batching: --max-batch-size 0",
            )  # fmt: skip
    found, begin = [], 0
    for item in items:
        end = begin + item.request.rows
        found.append({name: outputs[name][begin:end] for name in item.request.outputs})
        begin = end
    return found
