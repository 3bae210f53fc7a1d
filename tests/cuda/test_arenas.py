"""One arena for all shapes of a context, on the recorded device: how much memory there is, and who waits for whom."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

import neurenix as nx
from neurenix.hardware import get_backend
from tests.cuda.device_arrays import Arrays
from tests.cuda.jobs import classifier, leaves_nothing, optimized
from tests.cuda.stand_in import OUT_OF_MEMORY, Process, Recorded

BATCHES = (2, 7, 1, 40, 7, 2, 64, 40, 3, 4, 5, 6, 8, 9, 10, 64)


def needed(model: object, batch: int) -> int:
    """Bytes of a call at a batch, of which none has run."""
    return int(model.memory_required({"x": (batch, 3, 16, 16)}).activations)  # type: ignore[attr-defined]


@leaves_nothing
def held(batches: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """What a context holds of the device after each call, and what each needs."""
    recorded = Recorded()
    model = optimized(classifier(), optimization_level=0)
    # Another context keeps what all of them share.
    other, context = model._engine.create_context(), model._engine.create_context()
    other.run({"x": np.zeros((1, 3, 16, 16), np.float32)})
    needs = [needed(model, batch) for batch in batches]
    before, found = recorded.count("live_bytes"), []
    for batch in batches:
        for _ in range(3):
            assert context.run({"x": np.zeros((batch, 3, 16, 16), np.float32)})["y"].shape == (batch, 8)
        found.append(recorded.count("live_bytes") - before)
    return found, needs


def test_a_context_holds_what_its_largest_shape_needs(process: Process) -> None:
    found, needs = process.run(held, BATCHES)
    assert found == [max(needs[: at + 1]) for at in range(len(needs))]


@leaves_nothing
def outgrown(batch: int) -> tuple[str, list[int]]:
    """The error where there is no memory for a larger shape, and what a context holds before, then, and in the end."""
    recorded = Recorded()
    model = optimized(classifier(), optimization_level=0)
    context = model._engine.create_context()

    def call(size: int) -> int:
        context.run({"x": np.zeros((size, 3, 16, 16), np.float32)})
        return recorded.count("live_bytes")

    found = [call(4), call(4), call(4)]
    recorded.set("total_memory", found[0] + 4096)
    try:
        call(batch)
    except MemoryError as error:
        name = type(error).__name__
    found += [recorded.count("live_bytes"), call(4), call(4), call(4)]
    recorded.set("total_memory", 1 << 37)
    assert call(batch) > found[0]
    call(4)
    recorded.fail("cuMemAlloc_v2", 0, OUT_OF_MEMORY)
    try:
        call(batch + 8)
    except MemoryError:
        pass
    else:
        raise AssertionError("there was memory")
    call(4)
    call(batch)
    return name, found


def test_what_does_not_fit_leaves_the_shapes_that_did(process: Process) -> None:
    name, found = process.run(outgrown, 64)
    assert name == "OutOfMemoryError"
    assert len(set(found)) == 1


@leaves_nothing
def streams(order: tuple[int, ...]) -> list[dict[str, int]]:
    """What the calls of these batches wait for, each batch in a stream of its own."""
    recorded, device, found = Recorded(), Arrays(), []
    model = optimized(classifier(), optimization_level=0)
    sets = {
        batch: (device.array(batch * 3 * 16 * 16 * 4), device.array(batch * 8 * 4), device.stream())
        for batch in sorted(set(order))
    }
    names = ("cuStreamWaitEvent", "cuEventSynchronize", "cuStreamSynchronize", "cuGraphLaunch")
    for batch in order:
        x, y, stream = sets[batch]
        before = {name: recorded.count(name) for name in names}
        model._engine.run_at([x], [[batch, 3, 16, 16]], [y], stream)
        found.append({name: recorded.count(name) - before[name] for name in names})
    assert recorded.count("unfinished") > 0
    model.synchronize()
    device.close()
    return found


@leaves_nothing
def without_a_stream() -> list[dict[str, int]]:
    """What calls ask of the default stream: in a stream of the caller, without one, on arrays of the processor."""
    recorded, device = Recorded(), Arrays()
    model = optimized(classifier(), optimization_level=0)
    x, y, stream = device.array(2 * 3 * 16 * 16 * 4), device.array(2 * 8 * 4), device.stream()
    names = ("points in the default stream", "cuStreamWaitEvent")

    def asked(work: Callable[[], object]) -> dict[str, int]:
        before = {name: recorded.count(name) for name in names}
        work()
        return {name: recorded.count(name) - before[name] for name in names}

    found = [asked(lambda: model._engine.run_at([x], [[2, 3, 16, 16]], [y], stream))]
    model.synchronize()
    # The whole call is recorded as a graph at the third one.
    found += [asked(lambda: model._engine.run_at([x], [[2, 3, 16, 16]], [y], None)) for _ in range(4)]
    found.append(asked(lambda: model(np.zeros((2, 3, 16, 16), np.float32))))
    device.close()
    return found


def test_calls_without_a_stream_wait_for_the_default_one(process: Process) -> None:
    with_stream, *without, on_the_processor = process.run(without_a_stream)
    for found in (with_stream, on_the_processor):
        assert found["points in the default stream"] == 0, found
    for found in without:
        assert found["points in the default stream"] >= 1 and found["cuStreamWaitEvent"] >= 1, found


def test_shapes_in_several_streams_wait_for_each_other(process: Process) -> None:
    order = (64, 2, 64, 2, 64, 2, 7, 64, 7)
    found = process.run(streams, order)
    for at, (before, batch) in enumerate(itertools.pairwise(order), 1):
        # In the streams: the processor goes on at once.
        assert before != batch and found[at]["cuStreamWaitEvent"] >= 1, (at, found)
        assert not found[at]["cuEventSynchronize"] and not found[at]["cuStreamSynchronize"], (at, found)
    assert found[4]["cuGraphLaunch"] == found[5]["cuGraphLaunch"] == 1


def test_an_arena_grows_when_nothing_works_in_it(process: Process) -> None:
    found = process.run(streams, (2, 64, 2, 64, 2, 64))
    assert [counts["cuEventSynchronize"] for counts in found] == [0, 1, 0, 0, 0, 0]
    # What was recorded in the old one is recorded anew.
    assert [counts["cuGraphLaunch"] for counts in found[3:]] == [1, 1, 1]


@leaves_nothing
def regrown() -> None:
    """Arenas that come and go at one address, whose recordings name other memory than there is then."""
    recorded = Recorded()
    recorded.set("reuses_addresses", 1)
    context = optimized(classifier(), optimization_level=0)._engine.create_context()
    for batch in (4, 40, 4, 64, 40, 4):
        for _ in range(4):
            assert context.run({"x": np.zeros((batch, 3, 16, 16), np.float32)})["y"].shape == (batch, 8)
    assert recorded.count("nodes") > 0


def test_a_larger_arena_at_the_same_address_is_another_one(process: Process) -> None:
    process.run(regrown)


def scattered() -> nx.Network:
    """A row with some places written anew, by a kernel behind a copy of the row."""
    made = nx.Network("scattered")
    x, new = made.add_input("x", "float32", ["batch", 64]), made.add_input("new", "float32", ["batch", 4])
    places = made.add_constant("places", np.tile(np.arange(4), (2, 1)))
    made.mark_output(made.add_layer("ScatterElements", [x, places, new], {"axis": 1})[0], "y")
    return made


@leaves_nothing
def arrays_that_come_again(
    network: Callable[[], nx.Network], shapes: list[list[int]], results: int, offset: int
) -> list[int]:
    """The launches of graphs by calls whose first array lies in an allocation that is made anew, at this offset."""
    recorded, device = Recorded(), Arrays()
    model = optimized(network(), optimization_level=0)
    stream, found, seen = device.stream(), [], set()
    first, *others = (device.array(4 * int(np.prod(shape))) for shape in shapes)
    y = device.array(4 * results)
    model._engine.run_at([first, *others], shapes, [y], stream)
    recorded.set("reuses_addresses", 1)
    for _ in range(3):
        address, gpu = device.array(4 * int(np.prod(shapes[0])) + offset)
        seen.add(address)
        for _ in range(4):
            before = recorded.count("cuGraphLaunch")
            model._engine.run_at([(address + offset, gpu), *others], shapes, [y], stream)
            found.append(recorded.count("cuGraphLaunch") - before)
        model.synchronize()
        device.free_last()
    assert len(seen) == 1
    device.close()
    return found


def test_an_array_in_new_memory_at_the_same_address_is_another_one(process: Process) -> None:
    # One that no kernel reads where it is: it is copied, in the recording too.
    askew = process.run(arrays_that_come_again, classifier, [[4, 3, 16, 16]], 4 * 8, 16)
    # One that the launch of a kernel copies.
    scatter = process.run(arrays_that_come_again, scattered, [[2, 64], [2, 4]], 2 * 64, 0)
    for found in (askew, scatter):
        assert found[2:4] == found[6:8] == found[10:] == [1, 1]


def scaled() -> nx.Network:
    """A sum of an array and a number."""
    made = nx.Network("scaled")
    x, number = made.add_input("x", "float32", ["batch", 64]), made.add_input("number", "float32", [1, 1])
    made.mark_output(made.add_layer("Add", [x, number])[0], "y")
    return made


@leaves_nothing
def numbers_of_the_processor() -> list[dict[str, int]]:
    """What calls wait for whose array lies on the device, and a number beside it on the processor."""
    recorded, device, found = Recorded(), Arrays(), []
    profile = {"x": nx.Shape((1, 64), (4, 64), (8, 64)), "number": nx.Shape((1, 1), (1, 1), (1, 1))}
    model = get_backend("cuda", fallback=False).optimize_model(scaled(), profile, timing_cache=False, threads=2)
    x, y, stream = device.array(4 * 64 * 4), device.array(4 * 64 * 4), device.stream()
    number = np.full((1, 1), 3, np.float32)
    for _ in range(4):
        before = {name: recorded.count(name) for name in ("cuEventSynchronize", "cuStreamSynchronize", "unfinished")}
        at = [x, (number.ctypes.data, None)]
        model._engine.run_at(at, [[4, 64], [1, 1]], [y], stream)
        found.append({name: recorded.count(name) - count for name, count in before.items()})
    model.synchronize()
    device.close()
    return found


def test_a_number_of_the_processor_makes_no_call_wait(process: Process) -> None:
    first, *later = process.run(numbers_of_the_processor)
    assert first["unfinished"] == 1 and not first["cuStreamSynchronize"], first
    for found in later:
        # The buffer that holds the number is written to when nobody reads it any more.
        assert found["cuEventSynchronize"] == 1 and not found["cuStreamSynchronize"], found
