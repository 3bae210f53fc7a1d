"""Loads a server with requests and measures how long the answers take."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from neurenix.errors import DeviceError, InvalidArgumentError
from neurenix.serve.client import Counts, Send, connect
from neurenix.serve.spec import Array
from neurenix.serve.status import one_line

#: A measurement has at most so many requests, whose moments are known before it begins.
MOST_REQUESTS = 10_000_000


@dataclass(frozen=True)
class Target:
    """What is asked, and with what."""

    url: str
    model: str
    arrays: Mapping[str, Array]
    version: str = ""
    token: str | None = None


@dataclass
class Load:
    """What was measured. `seconds`: from when a request was due to its answer, for each that was answered.

    `late`: requests that were sent more than a millisecond after they were due, because all connections were busy.
    """

    seconds: list[float]
    walltime_s: float
    failures: Counter[str] = field(default_factory=Counter)
    rows_per_execution: float | None = None
    late: int = 0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.walltime_s if self.walltime_s else 0.0

    def record(self, percentiles: Sequence[float]) -> dict[str, Any]:
        """The figures, in milliseconds and requests a second."""
        ms = 1e3 * np.asarray(self.seconds or [float("nan")])
        latency = {"min": ms.min(), "mean": ms.mean(), "median": np.median(ms)}
        latency |= {f"percentile({p:g}%)": np.percentile(ms, p) for p in percentiles}
        latency["max"] = ms.max()
        return {
            "requests": len(self.seconds) + sum(self.failures.values()),
            "answered": len(self.seconds),
            "failures": dict(self.failures),
            "walltime_s": self.walltime_s,
            "throughput_qps": self.rate,
            "latency_ms": {name: float(value) for name, value in latency.items()},
            "rows_per_execution": self.rows_per_execution,
            "late": self.late,
        }


def probe(target: Target) -> None:
    """One request, before many of its kind; raises `DeviceError` with what the server says where it refuses that."""
    connection = connect(target.url, target.token)
    failure = connection.prepared(target.model, target.version, target.arrays)()
    connection.close()
    if failure is not None:
        got = f"{failure.reason}: {one_line(failure.text)}"
        raise DeviceError("the server does not answer the request to be measured", got=got)


def closed(target: Target, clients: int, duration: float, warmup: float = 0.2) -> Load:
    """Clients that each send a request as soon as the last one is answered. Raises `DeviceError`."""
    begin = [0.0]
    end = [0.0]

    def work(send: Send, seconds: list[float], failures: Counter[str]) -> int:
        while (start := time.perf_counter()) < end[0]:
            failure = send()
            now = time.perf_counter()
            if start < begin[0]:
                continue
            if failure is None:
                seconds.append(now - start)
            else:
                failures[failure.reason] += 1
        return 0

    def clock() -> None:
        begin[0] = time.perf_counter() + warmup
        end[0] = begin[0] + duration

    return _measured(target, clients, work, clock, begin)


def opened(
    target: Target, rate: float, duration: float, clients: int = 64, poisson: bool = True, seed: int = 0
) -> Load:
    """Requests that are due at so many a second, whether or not others were answered, as from many independent users.

    A request that finds all `clients` connections busy is sent later; its time counts from when it was due. Raises
    `DeviceError`, and `InvalidArgumentError` for more than `MOST_REQUESTS`.
    """
    if not rate * duration <= MOST_REQUESTS:
        raise InvalidArgumentError(
            "there are too many requests to measure", expected=f"a rate and a duration for at most {MOST_REQUESTS}",
            got=f"{rate:g} a second for {duration:g} s",
        )  # fmt: skip
    generator = np.random.default_rng(seed)
    count = max(1, round(rate * duration))
    gaps = generator.exponential(1 / rate, count) if poisson else np.full(count, 1 / rate)
    due: SimpleQueue[float] = SimpleQueue()
    begin = [0.0]

    def clock() -> None:
        begin[0] = time.perf_counter() + 0.05
        for moment in begin[0] + np.cumsum(gaps):
            due.put(float(moment))

    def work(send: Send, seconds: list[float], failures: Counter[str]) -> int:
        late = 0
        while True:
            try:
                moment = due.get_nowait()
            except Empty:
                return late
            if (wait := moment - time.perf_counter()) > 0:
                time.sleep(wait)
            late += time.perf_counter() - moment > 1e-3
            failure = send()
            if failure is None:
                seconds.append(time.perf_counter() - moment)
            else:
                failures[failure.reason] += 1

    return _measured(target, clients, work, clock, begin)


Work = Callable[[Send, list[float], Counter[str]], int]


def _measured(target: Target, clients: int, work: Work, clock: Callable[[], None], begin: list[float]) -> Load:
    """Runs a function for each client, on a thread and a connection of its own, from the same moment on."""
    asking = connect(target.url, target.token)
    asking.ports(target.model, target.version)
    before = asking.counts(target.model, target.version)
    ready = threading.Barrier(clients + 1)
    seconds: list[list[float]] = [[] for _ in range(clients)]
    failures: list[Counter[str]] = [Counter() for _ in range(clients)]
    late = [0] * clients

    def run(number: int) -> None:
        connection = connect(target.url, target.token)
        send = connection.prepared(target.model, target.version, target.arrays)
        ready.wait()
        late[number] = work(send, seconds[number], failures[number])
        connection.close()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    clock()
    ready.wait()
    for thread in threads:
        thread.join()
    walltime = time.perf_counter() - begin[0]
    after = asking.counts(target.model, target.version)
    asking.close()
    return Load(
        [value for found in seconds for value in found],
        walltime,
        sum(failures, Counter()),
        _rows(before, after),
        sum(late),
    )


def _rows(before: Counts | None, after: Counts | None) -> float | None:
    """Rows of an execution on average, between two counts."""
    if before is None or after is None or after.executions == before.executions:
        return None
    return (after.inferences - before.inferences) / (after.executions - before.executions)
