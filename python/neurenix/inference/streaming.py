"""A bounded pipeline from a source to results: reading, inference and the caller's work go on beside each other."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.inference.arrays_of import is_count
from neurenix.inference.flight import NAME
from neurenix.log import LOG

#: What becomes of an input for which there is no place.
POLICIES = ("block", "drop-oldest")
ON_ERROR = ("raise", "skip")
#: Latencies that are kept for percentiles.
KEPT = 10_000
#: Seconds that the end waits for a source that gives nothing, such as a camera.
PATIENCE = 5.0


@dataclass(frozen=True)
class StreamResult:
    """What came of one input of a stream.

    `index` counts the inputs of the source, dropped ones too; `time` is its time in the source in seconds (None where
    the source has none); `latency` the seconds from when it was read to when its output was there.
    """

    output: Any
    input: Any
    index: int
    time: float | None
    latency: float


class _Entry(NamedTuple):
    number: int
    begin: float
    item: Any


class Stats:
    """Counts of a stream: read, done, dropped, skipped; frames per second and percentiles of the latency."""

    def __init__(self) -> None:
        self.read = self.done = self.dropped = self.skipped = 0
        self._begin = time.perf_counter()
        self._end: float | None = None
        self._latencies: deque[float] = deque(maxlen=KEPT)

    def add(self, latency: float) -> None:
        """Counts an output."""
        self.done += 1
        self._latencies.append(latency)
        self._end = time.perf_counter()

    @property
    def fps(self) -> float:
        """Outputs a second, from the start to the last of them."""
        return self.done / max((self._end or self._begin) - self._begin, 1e-9) if self.done else 0.0

    def percentile(self, share: float) -> float:
        """A percentile of the latency in milliseconds, of the last 10,000 outputs; NaN without any."""
        return float(np.percentile(list(self._latencies), share)) * 1e3 if self._latencies else float("nan")

    def __str__(self) -> str:
        shares = ", ".join(f"p{share} {self.percentile(share):.1f} ms" for share in (50, 90, 95, 99))
        rest = "".join(f", {n} {word}" for word, n in (("dropped", self.dropped), ("skipped", self.skipped)) if n)
        return f"{self.done} frames, {self.fps:.1f} frames per second, latency {shares}{rest}"


class _Pipeline:
    """The threads of a stream and what they share. They hold it, and not the stream, which the caller may drop."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        source: Iterable[Any],
        *,
        prefetch: int = 2,
        policy: str = "block",
        on_error: str = "raise",
        jobs: int = 1,
        details: bool = False,
        split: Callable[[Any], tuple[Any, float | None]] = lambda item: (item, None),
    ) -> None:
        for name, number in (("prefetch", prefetch), ("jobs", jobs)):
            if not is_count(number):
                raise InvalidArgumentError(f"{name} is a number above 0", expected="1, 2, ...", got=repr(number))
        if not callable(function):
            raise InvalidArgumentError("a stream needs a function", expected="what can be called", got=repr(function))
        for name, word, known in (("policy", policy, POLICIES), ("on_error", on_error, ON_ERROR)):
            if word not in known:
                raise InvalidArgumentError(f"{name} is unknown", expected=" or ".join(map(repr, known)), got=repr(word))
        if not isinstance(source, Iterable):
            raise InvalidArgumentError(
                "a stream needs a source", expected="an iterable, a file, an address or a camera", got=repr(source)
            )
        self.stats = Stats()
        self._function, self._split = function, split
        self._source = iter(source)
        self._prefetch, self._jobs = int(prefetch), int(jobs)
        self._drops, self._skips, self._details = policy == POLICIES[1], on_error == ON_ERROR[1], details
        self._changed = threading.Condition()
        self._waiting: deque[_Entry] = deque()
        self._outcomes: dict[int, tuple[_Entry, Any, BaseException | None]] = {}
        self._taken = self._given = 0
        self._closed = self._read_all = False
        self._failure: BaseException | None = None
        names = [("reader", self._read), *((f"worker-{i}", self._work) for i in range(self._jobs))]
        self._threads = [threading.Thread(target=run, name=f"{NAME}-{name}", daemon=True) for name, run in names]
        for thread in self._threads:
            thread.start()

    def next(self) -> Any:
        """The next output; raises `StopIteration` at the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._given in self._outcomes or self._is_over() or self._closed)
                if self._given not in self._outcomes:
                    failure, self._failure = self._failure, None
                    if failure is None or self._closed:
                        break
                    self._closed = True
                    self._changed.notify_all()
                    raise failure
                entry, output, error = self._outcomes.pop(self._given)
                self._given += 1
                self._changed.notify_all()
            if error is None:
                latency = time.perf_counter() - entry.begin
                self.stats.add(latency)
                given, when = self._split(entry.item)
                return StreamResult(output, given, entry.number, when, latency) if self._details else output
            if not self._skips or not isinstance(error, Exception):
                self.close()
                if isinstance(error, StopIteration):
                    # It would end the caller's loop as if that were all.
                    raise RuntimeError("what is called for each input raised StopIteration") from error
                raise error
            self.stats.skipped += 1
            LOG.warning("input %d of the stream is left out: %s", entry.number, getattr(error, "message", error))
        self.close()
        raise StopIteration

    def _is_over(self) -> bool:
        return self._read_all and not self._waiting and self._taken == self._given

    def _read(self) -> None:
        """Reads the source, on its own thread."""
        failure: BaseException | None = None
        try:
            for index, item in enumerate(self._source):
                entry = _Entry(index, time.perf_counter(), item)
                with self._changed:
                    self.stats.read += 1
                    if not self._drops:
                        self._changed.wait_for(lambda: self._closed or len(self._waiting) < self._prefetch)
                    elif len(self._waiting) >= self._prefetch:
                        self._waiting.popleft()
                        self.stats.dropped += 1
                    if self._closed:
                        break
                    self._waiting.append(entry)
                    self._changed.notify_all()
        except BaseException as error:
            failure = error
        try:
            # A generator may be closed on no other thread than the one that runs it.
            close = getattr(self._source, "close", None)
            if callable(close):
                close()
        except BaseException as error:
            failure = failure or error
        finally:
            with self._changed:
                self._read_all, self._failure = True, failure
                self._changed.notify_all()

    def _work(self) -> None:
        """Calls the function for one input after another, in the order in which they were taken."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._closed
                        or (self._read_all and not self._waiting)
                        or (bool(self._waiting) and self._taken - self._given < self._jobs + self._prefetch)
                    )
                )
                if self._closed or not self._waiting:
                    return
                entry, number = self._waiting.popleft(), self._taken
                self._taken += 1
                self._changed.notify_all()
            output, failure = None, None
            try:
                output = self._function(self._split(entry.item)[0])
            except BaseException as error:
                failure = error
            with self._changed:
                self._outcomes[number] = (entry, output, failure)
                self._changed.notify_all()

    def stop(self) -> None:
        """Tells the threads to end, and drops what was not given."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._outcomes.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """The same, and waits for them."""
        self.stop()
        for thread in self._threads:
            # The source and the function may end their own stream.
            if thread is not threading.current_thread():
                thread.join(PATIENCE)


class Stream(Iterator[Any]):
    """The outputs of a function over a source, in order. An iterator; used in a `with`, closed or dropped, it ends its
    threads.

    One thread reads the source, `jobs` threads call the function, and the caller takes the outputs meanwhile. At most
    `prefetch` inputs wait to be worked on, and as many outputs to be taken.

    Iterating raises what the source raises, and, with `on_error="raise"`, what the function does.
    """

    def __init__(self, function: Callable[[Any], Any], source: Iterable[Any], **options: Any) -> None:
        self._pipeline = _Pipeline(function, source, **options)
        self.stats = self._pipeline.stats
        self._finalizer = weakref.finalize(self, self._pipeline.stop)
        # At the end of the interpreter its threads, which are daemons, end with it.
        self._finalizer.atexit = False

    def __next__(self) -> Any:
        return self._pipeline.next()

    def close(self) -> None:
        """Ends the stream; what was not given is dropped. A source that gives nothing is waited for 5 s at most."""
        self._pipeline.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
