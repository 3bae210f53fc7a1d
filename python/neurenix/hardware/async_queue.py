"""Requests that go on beside the caller: `start_async`, `wait_all`, callbacks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple

from neurenix.errors import InvalidArgumentError
from neurenix.hardware import placed
from neurenix.hardware.optimized import OptimizedModel

#: Gets the outputs by name and what `start_async` was given with the inputs.
Callback = Callable[[dict[str, Any], Any], Any]


class _Request(NamedTuple):
    number: int
    inputs: Mapping[str, Any]
    userdata: Any
    #: The caller's stream, where the inputs lie on a GPU.
    stream: Any
    future: Future[dict[str, Any]]


class AsyncQueue:
    """Runs requests on some threads, as many at once as there are `jobs`; callers go on meanwhile.

    `start_async` waits for a place when all jobs are taken, so that requests never pile up. `callback(outputs,
    userdata)` is called on a thread of the queue when a request is done; with `ordered=True` one call after another, in
    the order in which the requests were started. The arrays of a request must stay as they are until it is done.

    What a request or the callback raises is raised by `wait_all`, the first of it; a failed request has no callback. A
    future that is cancelled before its request runs takes the request back: it neither runs nor has a callback.
    `jobs` 0 takes as many as keep the processor busy: two, so that one is prepared while the other runs, and with
    `hint="throughput"` one for each of the model's threads.

    Used in a `with`, it waits at the end. A queue that is dropped does what was started; then its threads end. Any
    thread may call it.
    """

    def __init__(
        self, model: OptimizedModel, jobs: int = 0, *, callback: Callback | None = None, ordered: bool = False
    ) -> None:
        if isinstance(jobs, bool) or not isinstance(jobs, int) or not 0 <= jobs <= MOST_JOBS:
            raise InvalidArgumentError("jobs is a number of requests", expected=f"0 to {MOST_JOBS}", got=repr(jobs))
        if not isinstance(model, OptimizedModel):
            raise InvalidArgumentError(
                "a queue runs a model that is optimised",
                expected="what TensorRTBackend().optimize_model(...) gives",
                got=type(model).__name__,
            )
        _require_callback(callback)
        self._model = model
        self._names = tuple(port.name for port in model.inputs)
        self._callback = callback
        self._ordered = ordered
        self.jobs = jobs or model.jobs
        self._free = threading.Semaphore(self.jobs)
        self._waiting: SimpleQueue[_Item] = SimpleQueue()
        self._state = threading.Condition()
        self._started = 0
        # By number: what is started and not done, and what holds one of the places.
        self._open: set[int] = set()
        self._placed: set[int] = set()
        self._failure: BaseException | None = None
        self._closed = False
        self._done: dict[int, tuple[_Request, Any]] = {}
        self._next = 0
        self._delivering = False
        self._own = threading.local()
        serve = (self._waiting, self._own)
        self._threads = [threading.Thread(target=_serve, args=serve, daemon=True, name=NAME) for _ in range(self.jobs)]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, _dismiss, self._waiting, self.jobs).atexit = False

    def set_callback(self, callback: Callback | None) -> None:
        """What is called when a request is done; requests that are on their way call the new one."""
        _require_callback(callback)
        self._callback = callback

    def start_async(self, inputs: Any, userdata: Any = None) -> Future[dict[str, Any]]:
        """Starts a request: a dict of arrays by name, or the array of the only input. Gives a future of the outputs.

        Waits while all jobs are taken, unless a callback of this queue calls it: then the request goes behind the rest.

        Raises `InvalidArgumentError` when the queue is closed, or for an array alone where there are several inputs.
        """
        given = self._by_name(inputs)
        first = next(iter(given.values()), None)
        library = placed.library_of(first)
        stream = None if library is None else library[0].stream(library[1])
        inside = getattr(self._own, "inside", False)
        place = self._free.acquire(blocking=not inside)
        with self._state:
            if self._closed:
                if place:
                    self._free.release()
                raise InvalidArgumentError("the queue is closed", hint="make another one")
            request = _Request(self._started, given, userdata, stream, Future())
            self._started += 1
            try:
                self._open.add(request.number)
                if place:
                    self._placed.add(request.number)
                self._waiting.put((self, request))
            except BaseException:
                # A signal came between: nobody may wait for what nobody serves.
                self._leave(request.number)
                self._open.discard(request.number)
                raise
        return request.future

    def _leave(self, number: int) -> None:
        """Gives the place of a request back, if it holds one."""
        with self._state:
            if number in self._placed:
                self._placed.discard(number)
                self._free.release()

    def _by_name(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return inputs
        if len(self._names) != 1:
            raise InvalidArgumentError(
                "an array alone is for models with one input",
                expected=f"a dict with {', '.join(self._names)}",
                got=type(inputs).__name__,
            )
        return {self._names[0]: inputs}

    def is_ready(self) -> bool:
        """Whether `start_async` would not wait."""
        if place := self._free.acquire(blocking=False):
            self._free.release()
        return place

    def wait_all(self) -> None:
        """Waits until every request that was started is done, and its callback too.

        Raises the first failure since the last time it was asked for, and `InvalidArgumentError` in a callback of the
        queue, which would wait for itself.
        """
        self._wait(close=False)

    def _wait(self, close: bool) -> None:
        if getattr(self._own, "inside", False):
            raise InvalidArgumentError("a callback can't wait for its own queue", hint="wait where it was made")
        with self._state:
            self._state.wait_for(lambda: not self._open)
            self._closed = self._closed or close
            failure, self._failure = self._failure, None
        if close:
            self._end()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Waits for all requests and ends the threads. Raises as `wait_all`."""
        self._wait(close=True)

    def _end(self) -> None:
        _dismiss(self._waiting, len(self._threads))
        for thread in self._threads:
            thread.join()
        self._threads = []

    def __enter__(self) -> AsyncQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            # What the body raised tells more than what followed from it.
            if error is None:
                raise

    def _answer(self, request: _Request) -> None:
        outcome: Any = _CANCELLED
        if request.future.set_running_or_notify_cancel():
            try:
                outcome = self._model.run(request.inputs, request.stream)
                if request.stream is not None:
                    self._model.synchronize()
            except BaseException as error:
                outcome = error
        self._finish(request, outcome)

    def _finish(self, request: _Request, outcome: Any) -> None:
        if not self._ordered:
            self._deliver(request, outcome)
            return
        with self._state:
            self._done[request.number] = (request, outcome)
            if self._delivering:
                return
            self._delivering = True
        while True:
            with self._state:
                found = self._done.pop(self._next, None)
                if found is None:
                    self._delivering = False
                    return
                self._next += 1
            self._deliver(*found)

    def _deliver(self, request: _Request, outcome: Any) -> None:
        self._leave(request.number)
        failure: BaseException | None = None
        try:
            if isinstance(outcome, BaseException):
                failure = outcome
                request.future.set_exception(outcome)
            elif outcome is not _CANCELLED:
                request.future.set_result(outcome)
                if self._callback is not None:
                    self._callback(outcome, request.userdata)
        # Nothing may end a thread of the queue: SystemExit of a callback, the future's own too, is for who waits.
        except BaseException as error:
            failure = failure or error
        with self._state:
            self._failure = self._failure or failure
            self._open.discard(request.number)
            if not self._open:
                self._state.notify_all()


#: What a thread of a queue does next; None is the end.
_Item = tuple[AsyncQueue, _Request] | None


def _serve(waiting: SimpleQueue[_Item], own: threading.local) -> None:
    """Works for a queue. Between requests it does not hold the queue, which may then be dropped."""
    own.inside = True
    while (item := waiting.get()) is not None:
        queue, request = item
        queue._answer(request)
        del item, queue, request


def _dismiss(waiting: SimpleQueue[_Item], threads: int) -> None:
    """Ends the threads of a queue when they have done what is waiting."""
    for _ in range(threads):
        waiting.put(None)


#: The outcome of a request that was taken back.
_CANCELLED = object()
#: What its threads are called.
NAME = "neurenix-async"
#: More threads are a mistake.
MOST_JOBS = 1024


def _require_callback(callback: Any) -> None:
    if callback is not None and not callable(callback):
        raise InvalidArgumentError(
            "the callback can't be called",
            expected="a function of the outputs and userdata, or None",
            got=repr(callback),
        )
