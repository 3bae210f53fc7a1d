"""Calibrators: batches, and how the range of a tensor follows from its numbers on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from neurenix import files, memory, names
from neurenix._native import Histogram
from neurenix.arrays import Array
from neurenix.errors import InvalidArgumentError
from neurenix.log import LOG
from neurenix.quantization.cache import METHODS, CalibrationCache, check_writable
from neurenix.quantization.data import Port
from neurenix.quantization.data import batches as read_batches

#: Told of each batch: how many are done.
Progress = Callable[[int], Any]
#: Gives the tensors of a batch, by name; told how many samples stand before it.
Run = Callable[[dict[str, Array], int], "dict[str, Array | Counts]"]
#: Of the memory that is free, what the tensors of batches beside each other may take.
SHARE = 0.25
#: The steps that a range consists of, by whether all numbers are 0 or more.
STEPS = {False: 128, True: 255}
#: Verification looks at so many of the batches.
KEPT = 8


class Calibrator:
    """Finds the ranges of tensors on batches, in one pass: histograms of 2048 bins whose range doubles.

    `batches`: as `neurenix.quantization.data.batches` takes them. `cache_file`: where the ranges are kept, in
    TensorRT's text; where it is there and holds every tensor, no batch is read. `progress`: told of each batch.
    `limit`: how many batches are read at most.

    The same batches give the same bytes of the cache, whatever the number of threads: each batch is run by one thread,
    by kernels that rules choose, several batches beside each other. Batches that are cut otherwise may give numbers
    that differ in their last digits.
    """

    #: "entropy", "minmax", "percentile" or "mse".
    method = "entropy"
    #: Whether batches may be read though the cache tells the ranges: verification looks at them.
    reads_twice = True
    #: For "percentile": so many percent of the magnitudes are within.
    percentile = 99.99

    def __init__(
        self,
        batches: Any = None,
        cache_file: str | os.PathLike[str] | None = None,
        *,
        progress: Progress | None = None,
        limit: int | None = None,
    ) -> None:
        if limit is not None and not (isinstance(limit, int) and limit >= 1):
            raise InvalidArgumentError("the number of batches must be positive", got=repr(limit))
        self.batches = batches
        self.cache_file = cache_file
        self.progress = progress
        self.limit = limit
        #: The first batches that were read, for verification.
        self.seen: list[dict[str, Array]] = []
        #: Batches that were read ahead, and those behind them.
        self._ahead: Iterator[dict[str, Array]] | None = None

    def read(self, inputs: Sequence[Port]) -> Iterator[dict[str, Array]]:
        """The batches, for inputs of these names and shapes."""
        if self.batches is None:
            return iter(())
        return islice(read_batches(self.batches, inputs), self.limit)

    def ahead(self, inputs: Sequence[Port], samples: int, size: int) -> list[dict[str, Array]]:
        """The first batches, until they hold this many samples or bytes; they come once more where ranges are found."""
        given = self.read(inputs)
        taken: list[dict[str, Array]] = []
        while samples > 0 and size > 0 and (batch := next(given, None)) is not None:
            taken.append(batch)
            samples -= _samples(batch)
            size -= sum(array.nbytes for array in batch.values())
        self._ahead = chain(taken, given)
        return taken

    def read_calibration_cache(self) -> bytes | None:
        """The text of a cache; None for none."""
        if self.cache_file is None or not Path(self.cache_file).exists():
            return None
        data = files.read(self.cache_file, "the calibration cache")
        CalibrationCache.of_bytes(data, os.fspath(self.cache_file))
        return data

    def write_calibration_cache(self, cache: bytes) -> None:
        """Keeps the text of a cache."""
        if self.cache_file is not None:
            CalibrationCache.of_bytes(bytes(cache)).write(self.cache_file)

    def ranges(
        self,
        levels: dict[str, int],
        inputs: Sequence[Port],
        run: Run,
        jobs: int = 1,
        *,
        spare: Collection[str] = (),
        residuals: Collection[str] = (),
    ) -> dict[str, float]:
        """The magnitude of each tensor of `levels`, which says of how many steps its range consists.

        `run` gives the tensors of a batch by name, or what was counted of them, for at most `jobs` batches beside each
        other. A cache may lack those of `spare`. What is cut off from `residuals` is lost to all that follows: where
        the range of the least mean squared error is greater than the method's, it is theirs. Raises
        `InvalidArgumentError` where there is no batch, and `FormatError` for a damaged cache.
        """
        cached = self.read_calibration_cache()
        if cached is not None:
            known = CalibrationCache.of_bytes(bytes(cached), str(self.cache_file or "the calibration cache"))
            missing = [name for name in levels if name not in known.scales and name not in spare]
            if not missing and not self._by_another_method(known.method):
                given, self._ahead = self._ahead or self.read(inputs), None
                self.seen = list(islice(given, KEPT)) if self.reads_twice else []
                return {name: known.ranges[name] for name in levels if name in known.scales}
            if missing:
                self._of_another_model(missing, len(levels) - len(spare))
        if self.cache_file is not None:
            check_writable(self.cache_file)
        counted = self._counted(levels, inputs, run, jobs, residuals)
        zeros = [name for name, magnitude in counted.items() if magnitude == 0.0]
        if zeros:
            LOG.warning(
                "%d of %d tensors are zero in all batches, such as %r: calibrate on data that reaches them",
                len(zeros),
                len(counted),
                zeros[0],
            )
        found = CalibrationCache.of_ranges(self.method, counted)
        self.write_calibration_cache(found.to_bytes())
        return found.ranges

    def magnitude(self, numbers: Array) -> float:
        """The magnitude that a tensor of these numbers alone would have."""
        histogram = Histogram()
        histogram.add(np.ascontiguousarray(numbers, np.float32))
        return histogram.range(self.method, STEPS[False], self.percentile)

    def _of_another_model(self, missing: list[str], count: int) -> None:
        text = f"the calibration cache lacks {len(missing)} of {count} tensors, such as {missing[0]!r}"
        if self.batches is None:
            raise InvalidArgumentError(
                f"{text}: it is that of another model or version", hint="give batches to calibrate on, or another cache"
            )
        LOG.warning("%s: it is that of another model or version, and is written anew", text)

    def _by_another_method(self, word: str) -> bool:
        """Whether ranges are to be found anew, since the cache has those of another method."""
        known = next((method for method, name in METHODS.items() if name == word), None)
        known = "entropy" if word == "EntropyCalibration" else known
        if self.batches is None or known in (None, self.method):
            return False
        anew = self.reads_twice
        done = "it is written anew" if anew else "its ranges are used"
        LOG.warning("the calibration cache is one of %r, and the calibrator finds %r: %s", known, self.method, done)
        return anew

    def _counted(
        self, levels: dict[str, int], inputs: Sequence[Port], run: Run, jobs: int, residuals: Collection[str]
    ) -> dict[str, float]:
        # The package of inference imports what imports this.
        from neurenix.inference.flight import in_order

        counters = {name: Counter(name) for name in levels}
        sizes: list[int] = []

        def count(numbered: tuple[int, dict[str, Array]]) -> None:
            before, batch = numbered
            found = run(batch, before)
            sizes.append(sum(values.nbytes for values in found.values()))
            for name, values in found.items():
                counters[name].add(values)

        read, self._ahead = self._ahead or self.read(inputs), None
        given = _numbered(read)
        first = next(given, None)
        if first is None:
            raise InvalidArgumentError(
                "there is no batch to calibrate on", expected="at least one; some hundred samples are usual", got="none"
            )
        count(first)
        self.seen = [first[1]]
        self._tell(1)
        # Each batch in flight holds all that is counted.
        most = int(SHARE * memory.free() // max(sizes[0], 1))
        for done, ((_, batch), _, error) in enumerate(in_order(count, given, max(1, min(jobs, most))), 2):
            if error is not None:
                raise error
            if len(self.seen) < KEPT:
                self.seen.append(batch)
            self._tell(done)
        found = {name: counters[name].range(self.method, steps, self.percentile) for name, steps in levels.items()}
        wide = {name: counters[name].range(MSECalibrator.method, levels[name], self.percentile) for name in residuals}
        return {name: max(magnitude, wide.get(name, 0.0)) for name, magnitude in found.items()}

    def _tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done)


def _samples(batch: dict[str, Array]) -> int:
    return max((len(array) for array in batch.values() if array.ndim), default=1)


def _numbered(given: Iterator[dict[str, Array]]) -> Iterator[tuple[int, dict[str, Array]]]:
    """Batches, each with the number of samples before it."""
    before = 0
    for batch in given:
        yield before, batch
        before += _samples(batch)


class Counts(NamedTuple):
    """What the op Histogram gives of a tensor: 2048 counts, the exponent of their range, the least and the greatest
    number."""

    counts: Array
    exponent: Array
    ends: Array

    @property
    def nbytes(self) -> int:
        """Of all three."""
        return sum(part.nbytes for part in (self.counts, self.exponent, self.ends))


class Counter:
    """The histogram of a tensor, for several threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._histogram = Histogram()
        self._lock = Lock()

    def add(self, values: Array | Counts) -> None:
        """Counts numbers, or adds what was counted. Raises `InvalidArgumentError`, with the tensor, where one is not
        finite."""
        try:
            with self._lock:
                if isinstance(values, Counts):
                    least, greatest = values.ends.tolist()
                    self._histogram.join(values.counts, int(values.exponent), least, greatest)
                else:
                    self._histogram.add(values)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                "a batch to calibrate on makes numbers that are not finite",
                tensor=self._name,
                hint="look at that batch",
            ) from error

    def range(self, method: str, levels: int, percentile: float) -> float:
        """As `Histogram.range`."""
        return self._histogram.range(method, levels, percentile)


class EntropyCalibrator(Calibrator):
    """Of the ranges, the one whose 8 bits lose least information, as TensorRT's entropy calibrator."""


class MinMaxCalibrator(Calibrator):
    """The greatest magnitude."""

    method = "minmax"


class MSECalibrator(Calibrator):
    """The range of the least mean squared error."""

    method = "mse"


class PercentileCalibrator(Calibrator):
    """So many percent of the magnitudes are within the range."""

    method = "percentile"

    def __init__(
        self, batches: Any = None, cache_file: Any = None, *, percentile: float = 99.99, **options: Any
    ) -> None:
        if not 0 < percentile <= 100:
            raise InvalidArgumentError("a percentile is between 0 and 100", got=repr(percentile))
        super().__init__(batches, cache_file, **options)
        self.percentile = percentile


#: What each word of TensorRT's CalibrationAlgoType means here.
ALGORITHMS = {
    "LEGACY_CALIBRATION": "percentile",
    "ENTROPY_CALIBRATION": "entropy",
    "ENTROPY_CALIBRATION_2": "entropy",
    "MINMAX_CALIBRATION": "minmax",
}


class DataLoaderCalibrator(Calibrator):
    """Batches of a DataLoader; `algo_type` is a word of `trt.CalibrationAlgoType`, or "entropy", "minmax", ..."""

    def __init__(self, loader: Any, cache_file: Any = None, algo_type: Any = "entropy", **options: Any) -> None:
        super().__init__(loader, cache_file, **options)
        word = str(getattr(algo_type, "name", algo_type))
        self.method = method(ALGORITHMS.get(word, word))


def method(word: str) -> str:
    """A method of calibration. Raises `InvalidArgumentError`, with the nearest word, for what is none."""
    if word not in METHODS:
        raise InvalidArgumentError(
            f"there is no method of calibration {word!r}", expected=", ".join(METHODS), hint=names.hint(word, METHODS)
        )
    return word


def calibrator(given: Any, how: str = "entropy") -> Calibrator:
    """A calibrator: itself, one of TensorRT's shape, or batches to calibrate on by a method."""
    if isinstance(given, Calibrator):
        return given
    if hasattr(given, "get_batch") and hasattr(given, "get_batch_size"):
        from neurenix.quantization.adapters import Adapter

        return Adapter(given)
    made = Calibrator(given)
    made.method = method(how)
    return made
