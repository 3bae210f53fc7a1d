"""AsyncQueue: requests beside each other, bounded, in order on request, and what goes wrong in them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import DTypeError, InvalidArgumentError, nn
from neurenix.hardware import AsyncQueue, OptimizedModel
from neurenix.hardware.tensorrt import TensorRTBackend


class Twice(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + x


@pytest.fixture(scope="module")
def model() -> OptimizedModel:
    return TensorRTBackend(threads=1, optimization_level=0).optimize_model(Twice(), {"x": (1, 8)})


def numbered(i: int) -> np.ndarray[Any, Any]:
    return np.full((1, 8), i, np.float32)


def test_every_request_is_answered_with_its_own_userdata(model: OptimizedModel) -> None:
    answers: dict[int, float] = {}

    def keep(outputs: dict[str, Any], number: int) -> None:
        answers[number] = float(outputs["output"][0, 0])

    with AsyncQueue(model, 4, callback=keep) as queue:
        futures = [queue.start_async({"x": numbered(i)}, i) for i in range(300)]
        queue.wait_all()
        assert answers == {i: 2.0 * i for i in range(300)}
        assert all(future.done() for future in futures)
        assert futures[7].result()["output"][0, 0] == 14
        queue.start_async(numbered(5), 300)
    assert answers[300] == 10


def test_callbacks_in_order_and_one_at_a_time(model: OptimizedModel) -> None:
    seen: list[int] = []
    inside = threading.Lock()

    def keep(outputs: dict[str, Any], number: int) -> None:
        assert inside.acquire(blocking=False)
        if number % 50 == 0:
            time.sleep(0.002)
        seen.append(number)
        inside.release()

    with AsyncQueue(model, 8, callback=keep, ordered=True) as queue:
        for i in range(400):
            queue.start_async(numbered(i), i)
    assert seen == list(range(400))


def test_no_more_requests_than_jobs(model: OptimizedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, running = threading.Event(), []

    def slow(inputs: Any, stream: Any = None) -> dict[str, Any]:
        running.append(1)
        gate.wait(30)
        return {}

    monkeypatch.setattr(model, "run", slow)
    queue = AsyncQueue(model, 3)
    assert queue.jobs == 3
    for _ in range(3):
        assert queue.is_ready()
        queue.start_async(numbered(0))
    assert not queue.is_ready()
    late = threading.Thread(target=queue.start_async, args=(numbered(1),))
    late.start()
    late.join(0.2)
    assert late.is_alive(), "the fourth request waits for a place"
    gate.set()
    late.join(30)
    queue.close()
    assert len(running) == 4


def test_a_callback_may_start_requests(model: OptimizedModel) -> None:
    """All threads are in callbacks that start another request: nobody may wait for a place then."""
    ends: list[int] = []

    def again(outputs: dict[str, Any], left: int) -> None:
        if left:
            queue.start_async({"x": outputs["output"]}, left - 1)
        else:
            ends.append(float(outputs["output"][0, 0]))

    with AsyncQueue(model, 2, callback=again) as queue:
        for _ in range(20):
            queue.start_async(numbered(1), 4)
        queue.wait_all()
    assert ends == [32.0] * 20


def test_failures_are_raised_by_wait_all(model: OptimizedModel) -> None:
    called: list[Any] = []
    queue = AsyncQueue(model, 2, callback=lambda outputs, userdata: called.append(userdata))
    bad = queue.start_async(numbered(1).astype(np.float64), "bad")
    queue.start_async(numbered(1), "good")
    with pytest.raises(DTypeError):
        queue.wait_all()
    assert called == ["good"]
    assert isinstance(bad.exception(), DTypeError)
    queue.wait_all()

    def broken(outputs: Any, userdata: Any) -> None:
        raise KeyError("mine")

    queue.set_callback(broken)
    queue.start_async(numbered(1))
    with pytest.raises(KeyError, match="mine"):
        queue.wait_all()
    queue.set_callback(None)
    queue.close()
    with pytest.raises(InvalidArgumentError, match="the queue is closed"):
        queue.start_async(numbered(1))
    with pytest.raises(ValueError, match="the body's own"), AsyncQueue(model) as failing:
        failing.start_async(numbered(1).astype(np.float64))
        raise ValueError("the body's own")


def test_a_callback_can_not_wait_for_its_own_queue(model: OptimizedModel) -> None:
    queue = AsyncQueue(model, 1, callback=lambda outputs, userdata: queue.wait_all())
    queue.start_async(numbered(1))
    with pytest.raises(InvalidArgumentError, match="can't wait for its own queue"):
        queue.close()


@pytest.mark.parametrize("jobs", [-1, 1.5, True, "many", 10_000])
def test_wrong_numbers_of_jobs(model: OptimizedModel, jobs: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="jobs is a number of requests"):
        AsyncQueue(model, jobs)


def test_an_array_alone_needs_a_model_with_one_input() -> None:
    class Two(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a + b

    model = TensorRTBackend(threads=1, optimization_level=0).optimize_model(Two(), {"a": (1, 2), "b": (1, 2)})
    with AsyncQueue(model) as queue, pytest.raises(InvalidArgumentError, match="for models with one input"):
        queue.start_async(np.zeros((1, 2), np.float32))


def test_a_hundred_thousand_requests_leak_nothing(model: OptimizedModel) -> None:
    x = numbered(1)
    count = [0]

    def keep(outputs: dict[str, Any], userdata: Any) -> None:
        count[0] += 1

    def some(number: int) -> int:
        with AsyncQueue(model, 1, callback=keep) as queue:
            for _ in range(number):
                queue.start_async(x)
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    # Each request makes an array of 32 bytes, a dict and a future: kept, they would be some 100 MB in each round.
    # Whatever else the process does may move its size by some MB in one.
    sizes = [some(5_000), some(100_000)]
    while sizes[-1] - sizes[-2] >= 8 << 20 and len(sizes) < 4:
        sizes.append(some(100_000))
    assert count[0] == 5_000 + 100_000 * (len(sizes) - 1)
    assert sizes[-1] - sizes[-2] < 8 << 20
    assert not [t for t in threading.enumerate() if t.name == "neurenix-async"]


def held(model: OptimizedModel, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Requests wait until it is set."""
    gate, run = threading.Event(), model.run

    def slow(inputs: Any, stream: Any = None) -> dict[str, Any]:
        gate.wait(30)
        return run(inputs, stream)

    monkeypatch.setattr(model, "run", slow)
    return gate


@pytest.mark.parametrize("ordered", [False, True])
def test_a_cancelled_future_takes_its_request_back(
    model: OptimizedModel, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    gate, called = held(model, monkeypatch), list[int]()
    queue = AsyncQueue(model, 2, callback=lambda outputs, number: called.append(number), ordered=ordered)
    running = [queue.start_async(numbered(i), i) for i in range(2)]
    while not all(future.running() for future in running):
        time.sleep(0.001)
    assert not running[0].cancel(), "it runs already"
    # Those of a callback wait for no place: such a request waits behind the others.
    monkeypatch.setattr(queue._own, "inside", True, raising=False)
    waiting = [queue.start_async(numbered(i), i) for i in range(2, 6)]
    monkeypatch.setattr(queue._own, "inside", False)
    assert waiting[0].cancel() and waiting[2].cancel()
    gate.set()
    queue.wait_all()
    assert sorted(called) == [0, 1, 3, 5] and (not ordered or called == sorted(called))
    with pytest.raises(CancelledError):
        waiting[0].result()
    queue.close()


def test_requests_that_asyncio_no_longer_waits_for(model: OptimizedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = held(model, monkeypatch)

    async def impatient(queue: AsyncQueue) -> None:
        for i in range(20):
            future = asyncio.wrap_future(queue.start_async(numbered(i)))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(future, 0.001)
            gate.set()

    with AsyncQueue(model, 2) as queue:
        asyncio.run(impatient(queue))
        queue.wait_all()
        assert queue.start_async(numbered(3)).result(30)["output"][0, 0] == 6


def test_what_ends_a_thread_is_raised_by_wait_all(model: OptimizedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(outputs: Any, userdata: Any) -> None:
        raise SystemExit(3)

    queue = AsyncQueue(model, 1, callback=leave)
    for _ in range(3):
        queue.start_async(numbered(1))
    with pytest.raises(SystemExit):
        queue.wait_all()
    queue.set_callback(None)
    gate = held(model, monkeypatch)
    queue.start_async(numbered(1)).add_done_callback(lambda future: leave(future, None))
    gate.set()
    assert queue.start_async(numbered(2)).result(30)["output"][0, 0] == 4
    with pytest.raises(SystemExit):
        queue.close()


def test_a_queue_that_is_dropped_does_what_was_started_and_ends(model: OptimizedModel) -> None:
    class Keeper:
        """Its queue calls it, and it has the queue."""

        def __init__(self) -> None:
            self.queue = AsyncQueue(model, 2, callback=self.keep)
            self.threads = self.queue._threads

        def keep(self, outputs: Any, userdata: Any) -> None:
            seen.append(userdata)

    seen: list[int] = []
    keeper = Keeper()
    future, threads = keeper.queue.start_async(numbered(4), 4), keeper.threads
    del keeper
    gc.collect()
    assert future.result(30)["output"][0, 0] == 8
    end = time.monotonic() + 30
    while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    assert not any(thread.is_alive() for thread in threads)
    assert seen == [4]
