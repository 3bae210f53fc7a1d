"""Streams and videos: order, bounds, policies, times, bad frames, what ends early, and memory over many frames."""

from __future__ import annotations

import gc
import itertools
import resource
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import FileError, FormatError, InvalidArgumentError
from neurenix.inference import InferenceEngine, Stream, Video, VideoWriter
from tests.inference.conftest import by_torch, convolutions, optimized
from tests.inference.films import SIZE, picture, place, render

av = pytest.importorskip("av", reason="PyAV is not installed")


@pytest.fixture(scope="module")
def engine() -> InferenceEngine:
    return InferenceEngine(optimized(convolutions(2), (1, 1, 16, 16)), warmup=0)


def alive() -> int:
    return sum(thread.name.startswith("neurenix-inference-") for thread in threading.enumerate())


def until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    assert condition()


def test_outputs_come_in_order(engine: InferenceEngine, rng: np.random.Generator) -> None:
    inputs = [rng.standard_normal((1, 1, 16, 16)).astype(np.float32) for _ in range(60)]
    module = convolutions(2)
    with engine.stream(iter(inputs), prefetch=3) as stream:
        for x, y in zip(inputs, stream, strict=True):
            np.testing.assert_allclose(y, by_torch(module, x), rtol=0, atol=1e-5)
    assert stream.stats.done == 60 and stream.stats.dropped == stream.stats.skipped == 0
    assert stream.stats.fps > 0 and stream.stats.percentile(99) >= stream.stats.percentile(50) > 0
    assert list(engine.stream([])) == []


@pytest.mark.parametrize(("prefetch", "jobs"), [(1, 1), (2, 2), (4, 3)])
def test_nothing_piles_up(prefetch: int, jobs: int) -> None:
    given: list[int] = []

    def source() -> Iterator[int]:
        for number in itertools.count():
            given.append(number)
            yield number

    with Stream(lambda x: x, source(), prefetch=prefetch, jobs=jobs) as stream:
        for expected in range(30):
            assert next(stream) == expected
            time.sleep(0.002)
            assert len(given) <= expected + 2 + 2 * prefetch + jobs
    assert alive() == 0


def test_workers_go_on_beside_each_other_and_the_order_is_kept() -> None:
    barrier = threading.Barrier(3, timeout=20)

    def together(x: int) -> int:
        barrier.wait()
        time.sleep(0.01 * (x % 3))
        return x

    assert list(Stream(together, range(30), jobs=3, prefetch=3)) == list(range(30))


def test_the_oldest_are_dropped_where_the_caller_is_slow() -> None:
    def camera() -> Iterator[int]:
        for number in range(200):
            time.sleep(0.001)
            yield number

    seen = []
    with Stream(lambda x: x, camera(), policy="drop-oldest", prefetch=2, details=True) as stream:
        for result in stream:
            seen.append(result.index)
            assert result.output == result.index
            time.sleep(0.01)
    assert seen == sorted(set(seen)) and len(seen) < 100 and seen[-1] >= 198
    assert stream.stats.dropped + stream.stats.done == stream.stats.read == 200


def test_what_fails_is_raised_at_its_place_or_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def picky(x: int) -> int:
        if x == 5:
            raise ValueError("five")
        return x

    seen = []
    with pytest.raises(ValueError, match="five"):
        for y in Stream(picky, range(10), jobs=2):
            seen.append(y)
    assert seen == [0, 1, 2, 3, 4]
    stream = Stream(picky, range(10), jobs=2, on_error="skip")
    assert list(stream) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert stream.stats.skipped == 1 and "input 5 of the stream is left out: five" in caplog.text


def test_what_the_source_raises_comes_behind_what_it_gave() -> None:
    def source() -> Iterator[int]:
        yield from range(7)
        raise OSError("unplugged")

    seen = []
    with pytest.raises(OSError, match="unplugged"):
        for y in Stream(lambda x: x, source(), jobs=2):
            seen.append(y)
    assert seen == list(range(7))
    until(lambda: alive() == 0)


@pytest.mark.parametrize("how", ["close", "drop", "break"])
def test_a_stream_that_is_left_ends_its_threads_and_its_source(how: str) -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            closed.set()

    stream = Stream(lambda x: x, source(), jobs=2)
    assert next(stream) == 0
    if how == "close":
        stream.close()
        with pytest.raises(StopIteration):
            next(stream)
    elif how == "break":
        for _ in stream:
            break
    del stream
    until(lambda: alive() == 0 and closed.is_set())


def test_a_film_is_read_as_it_was_written(tmp_path: Path) -> None:
    render(tmp_path / "film.mp4", 40)
    video = Video(tmp_path / "film.mp4")
    assert video.size == SIZE and video.rate == 25
    frames = list(video)
    assert len(frames) == 40
    for number, frame in enumerate(frames):
        assert frame.time == pytest.approx(number / 25)
        away = np.abs(frame.picture.astype(int) - picture(number))
        assert away.mean() < 12


def test_odd_sizes_and_kept_times(tmp_path: Path) -> None:
    stamps = [0, 40, 50, 51, 200, 1000]
    with VideoWriter(tmp_path / "odd.mp4", (97, 129), Fraction(25), Fraction(1, 1000)) as writer:
        for number, stamp in enumerate(stamps):
            writer.write(picture(number, (97, 129)), stamp)
    found = [frame.time for frame in Video(tmp_path / "odd.mp4")]
    assert found == pytest.approx([stamp / 1000 for stamp in stamps], abs=1e-3)
    assert Video(tmp_path / "odd.mp4").size == (98, 130)


def test_an_engine_streams_a_film_with_its_times(tmp_path: Path) -> None:
    render(tmp_path / "film.mp4", 30)
    model = optimized(convolutions(2), (1, 1, *SIZE))
    engine = InferenceEngine(model, warmup=0, preprocess=lambda p: p.mean(2, dtype=np.float32)[None] / 255)
    module = convolutions(2)
    results = list(engine.stream(str(tmp_path / "film.mp4"), details=True))
    assert [result.index for result in results] == list(range(30))
    for result in results:
        assert result.time == pytest.approx(result.index / 25)
        top, left = place(result.index)
        assert result.input[top + 12, left + 12, 0] > 200
        expected = by_torch(module, result.input.mean(2)[None, None] / 255)[0]
        np.testing.assert_allclose(result.output, expected, rtol=0, atol=1e-5)


def test_bad_frames_are_left_out_or_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "film.mp4"
    render(path, 60)
    data = bytearray(path.read_bytes())
    begin, end = data.index(b"mdat") + 4, data.index(b"moov") - 4
    begin += (end - begin) // 2
    data[begin : begin + 600] = bytes(600)
    path.write_bytes(data)
    video = Video(path)
    frames = list(video)
    assert 10 < len(frames) <= 60
    if video.skipped:
        assert "a bad frame" in caplog.text
        with pytest.raises(FormatError, match="a frame of the video is bad"):
            list(Video(path, on_error="raise"))
    path.write_bytes(bytes(data[: len(data) // 2]))
    with pytest.raises(FileError, match="can't be opened"):
        Video(path)


@pytest.mark.parametrize(
    ("kind", "call", "text"),
    [
        (FileError, lambda e: e.stream("missing.mp4"), "no such video"),
        (FileError, lambda e: e.stream(63), "can't be opened"),
        (InvalidArgumentError, lambda e: e.stream(-1), "no such camera"),
        (InvalidArgumentError, lambda e: e.stream([], prefetch=0), "prefetch"),
        (InvalidArgumentError, lambda e: e.stream([], policy="drop"), "policy"),
        (InvalidArgumentError, lambda e: e.stream([], on_error="ignore"), "on_error"),
        (InvalidArgumentError, lambda e: e.stream(None), "needs a source"),
        (FileError, lambda e: VideoWriter("/nowhere/film.mp4", (4, 4), Fraction(25)), "can't be written"),
    ],
)
def test_wrong_arguments(kind: Any, call: Any, text: str, engine: InferenceEngine) -> None:
    with pytest.raises(kind, match=text):
        call(engine)


@pytest.mark.exclusive
def test_memory_stays_flat_over_many_frames() -> None:
    def source(count: int) -> Iterator[Any]:
        for _ in range(count):
            yield np.empty((480, 640, 3), np.uint8)

    function = lambda x: x.astype(np.float32)  # noqa: E731
    # Each stream has threads of its own, and an allocator keeps memory for each thread: as much as they come to hold.
    for _ in range(5):
        for _ in Stream(function, source(200), jobs=2):
            pass
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in Stream(function, source(3000), jobs=2):
        pass
    # 3,000 frames are 2.7 GB, and their outputs four times as much.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 << 10


class Closing:
    """A source of three numbers whose close() fails, or is no function."""

    def __init__(self, close: Any) -> None:
        self.close = close
        self._numbers = iter(range(3))

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return next(self._numbers)


def test_a_source_that_can_t_be_closed_ends_the_stream_all_the_same() -> None:
    def close() -> None:
        raise OSError("still in use")

    seen = []
    with pytest.raises(OSError, match="still in use"):
        for y in Stream(lambda x: x, Closing(close)):
            seen.append(y)
    assert seen == [0, 1, 2] == list(Stream(lambda x: x, Closing(5)))


def test_a_function_that_raises_stop_iteration_is_no_end() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(Stream(lambda x: next(iter([])), range(3)))


def test_a_stream_may_be_closed_by_its_source_and_its_function() -> None:
    made: list[Stream] = []
    known = threading.Event()

    def source() -> Iterator[int]:
        yield from range(3)
        known.wait(20)
        made[0].close()

    def function(x: int) -> int:
        known.wait(20)
        made[0].close()
        return x

    for stream in (lambda: Stream(lambda x: x, source()), lambda: Stream(function, range(9))):
        known.clear()
        made[:] = [stream()]
        known.set()
        begin = time.monotonic()
        list(made[0])
        assert time.monotonic() - begin < 4
    until(lambda: alive() == 0)


@pytest.mark.parametrize("jobs", [0, -1, "2", True])
def test_a_stream_without_workers(jobs: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="jobs is a number above 0"):
        Stream(lambda x: x, range(3), jobs=jobs)
    with pytest.raises(InvalidArgumentError, match="needs a function"):
        Stream(None, range(3))  # type: ignore[arg-type]
    assert alive() == 0


def test_a_video_is_known_after_its_end_and_read_once(tmp_path: Path) -> None:
    render(tmp_path / "film.mp4", 3)
    video = Video(tmp_path / "film.mp4")
    assert len(list(video)) == 3
    # PyAV ends the process where a stream of a closed container is asked.
    assert video.size == SIZE and video.rate == 25 and video.frames == 3 and video.time_base > 0
    with pytest.raises(InvalidArgumentError, match="come once"):
        iter(video)


def test_a_writer_that_is_closed(tmp_path: Path) -> None:
    writer = VideoWriter(tmp_path / "film.mp4", SIZE, Fraction(25))
    writer.write(picture(0))
    writer.close()
    writer.close()
    with pytest.raises(InvalidArgumentError, match="is closed"):
        writer.write(picture(1))
    assert len(list(Video(tmp_path / "film.mp4"))) == 1
