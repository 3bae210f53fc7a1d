"""What a call on arrays of the GPU asks of the driver, on the recorded device: as little as is right."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from neurenix.errors import InvalidArgumentError
from tests.cuda.device_arrays import Arrays
from tests.cuda.jobs import classifier, leaves_nothing, optimized
from tests.cuda.stand_in import Process, Recorded

SHAPES = [[2, 3, 16, 16]]
SIZES = (2 * 3 * 16 * 16 * 4, 2 * 8 * 4)
#: What the driver calls the default stream.
NULL, LEGACY = (0, 0), (0, 1)
#: So many calls capture a graph.
WARM = 3
LAUNCH = {"cuCtxGetCurrent": 1, "cuThreadExchangeStreamCaptureMode": 2, "cuGraphLaunch": 1}
#: Any other stream may be captured, and may be gone, with its handle another one's, when somebody waits for the call.
IN_A_STREAM = {"cuStreamIsCapturing": 1, "cuStreamWaitEvent": 1, "cuGraphLaunch": 1, "cuEventRecord": 1}
IN_A_STREAM |= {"cuCtxGetCurrent": 4, "cuThreadExchangeStreamCaptureMode": 8}
OTHERS = ("cuPointerGetAttribute", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "calls")

Counts = dict[str, int]


class Counted:
    """Calls of an engine, and what each asks of the driver."""

    def __init__(self) -> None:
        self.recorded, self.device = Recorded(), Arrays()
        self.model = optimized(classifier(), optimization_level=0)
        self.arrays = [[self.device.array(size)] for size in SIZES]

    def __call__(self, stream: tuple[int, int] | None, held: bool = True) -> Counts:
        names = (*IN_A_STREAM, *OTHERS)
        before = {name: self.recorded.count(name) for name in names}
        self.model._engine.run_at(self.arrays[0], SHAPES, self.arrays[1], stream, held=held)
        found = {name: self.recorded.count(name) - before[name] for name in names}
        return {name: count for name, count in found.items() if count}

    def warm(self, stream: tuple[int, int] | None) -> None:
        """Has the call captured."""
        for _ in range(WARM):
            self(stream)

    def close(self) -> None:
        """Gives all of it back."""
        self.model.synchronize()
        assert self.device.driver.cuStreamSynchronize(None) == 0
        self.device.close()


def with_sum(counts: Counts) -> Counts:
    return counts | {"calls": sum(counts.values())}


@leaves_nothing
def steady(kind: str, held: bool, from_elsewhere: bool) -> Counts:
    """What a call asks that comes as others came, perhaps on a thread without a GPU of its own."""
    call = Counted()
    stream = {"null": NULL, "legacy": LEGACY}.get(kind) or call.device.stream()
    call.warm(stream)
    if from_elsewhere:
        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(call, stream, held).result()
    else:
        found = call(stream, held)
    call.close()
    return found


@pytest.mark.parametrize("kind", ["null", "legacy"])
def test_a_call_in_the_default_stream_launches_its_graph_and_no_more(process: Process, kind: str) -> None:
    assert process.run(steady, kind, True, False) == with_sum(LAUNCH)


def test_a_call_in_another_stream_leaves_an_event_behind_it(process: Process) -> None:
    assert process.run(steady, "own", True, False) == with_sum(IN_A_STREAM)


def test_the_driver_is_asked_for_each_array_that_nobody_holds(process: Process) -> None:
    assert process.run(steady, "null", False, False) == with_sum(LAUNCH | {"cuPointerGetAttribute": 2})


def test_a_thread_without_a_gpu_has_ours_for_the_call(process: Process) -> None:
    entered = {"cuCtxPushCurrent_v2": 1, "cuCtxPopCurrent_v2": 1}
    assert process.run(steady, "null", True, True) == with_sum(LAUNCH | entered)


@leaves_nothing
def by_turns(order: str) -> list[Counts]:
    """What calls ask in streams by turns: `n` for the default one, other letters for others."""
    call = Counted()
    streams = {"n": NULL} | {name: call.device.stream() for name in sorted(set(order) - {"n"})}
    call.warm(streams[order[0]])
    found = [call(streams[name]) for name in order]
    assert call.recorded.count("unfinished") > 0
    call.close()
    return found


@pytest.mark.parametrize("order", ["nanaabbnnba", "aabbaan", "nnnn"])
def test_a_call_waits_for_the_one_before_unless_both_are_in_the_default_stream(process: Process, order: str) -> None:
    found = process.run(by_turns, order)
    for at in range(1, len(order)):
        waits = order[at - 1 : at + 1] != "nn"
        assert found[at].get("cuStreamWaitEvent", 0) == waits, (at, found)
        # The default stream is asked for its end when somebody waits for it.
        recorded = (order[at] != "n") + (waits and order[at - 1] == "n")
        assert found[at].get("cuEventRecord", 0) == recorded, (at, found)


@leaves_nothing
def in_a_stream_of_the_same_name() -> tuple[bool, Counts]:
    """Whether a stream has the handle of one that is gone, and what the call there asks."""
    call = Counted()
    driver, streams = call.device.driver, []
    call.recorded.set("reuses_streams", 1)
    for _ in range(2):
        stream = ctypes.c_void_p()
        assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
        streams.append(stream.value)
        found = call((0, stream.value or 0))
        assert driver.cuStreamDestroy_v2(stream) == 0
    call.close()
    return streams[0] == streams[1], found


def test_a_stream_with_the_handle_of_one_that_is_gone_is_another_one(process: Process) -> None:
    same, found = process.run(in_a_stream_of_the_same_name)
    assert same and found["cuStreamWaitEvent"] == 1


@leaves_nothing
def refused(how: str) -> tuple[str, Counts]:
    """What a call is told whose input has no memory any more, and what the next one asks."""
    call = Counted()
    call.warm(NULL)
    kept = call.arrays[0]
    if how == "empty":
        call.arrays[0] = [(0, 0)]
    else:
        call.arrays[0] = [call.device.array(SIZES[0])]
        call.warm(NULL)
        call.device.free_last()
    message = ""
    try:
        call(NULL, how == "empty")
    except InvalidArgumentError as error:
        message = str(error)
    call.arrays[0] = kept
    found = call(NULL)
    call.close()
    return message, found


@pytest.mark.parametrize("how", ["empty", "freed"])
def test_an_array_without_memory_is_refused(process: Process, how: str) -> None:
    message, found = process.run(refused, how)
    assert "tensor: x" in message and "lies in no memory of the device" in message
    assert found == with_sum(LAUNCH)


@leaves_nothing
def in_new_memory() -> list[int]:
    """The launches of graphs by calls whose input lies at one address in memory that is made anew."""
    call = Counted()
    call.warm(NULL)
    call.recorded.set("reuses_addresses", 1)
    found, seen = [], set()
    for _ in range(3):
        call.arrays[0] = [call.device.array(SIZES[0])]
        seen.add(call.arrays[0][0])
        found += [call(NULL).get("cuGraphLaunch", 0) for _ in range(4)]
        call.model.synchronize()
        call.device.free_last()
    assert len(seen) == 1
    call.close()
    return found


def test_kernels_alone_take_what_lies_at_an_address(process: Process) -> None:
    # The first call in part: between kernels that use arrays of the caller are too few for a graph.
    assert process.run(in_new_memory)[2:] == [1] * 10


@leaves_nothing
def from_several_threads(calls: int) -> Any:
    """Calls of one engine by threads that each have a stream, and one that works in the default one."""
    call = Counted()
    streams = [NULL, call.device.stream(), call.device.stream()]
    arrays = [[[call.device.array(size)] for size in SIZES] for _ in streams]

    def work(number: int) -> None:
        for _ in range(calls):
            x, y = arrays[number]
            call.model._engine.run_at(x, SHAPES, y, streams[number], held=True)

    with ThreadPoolExecutor(len(streams)) as threads:
        list(threads.map(work, range(len(streams))))
    host = call.model(np.zeros(SHAPES[0], np.float32)).shape
    call.close()
    return host


def test_threads_share_an_engine_in_streams_of_their_own(process: Process) -> None:
    assert process.run(from_several_threads, 40) == (2, 8)
