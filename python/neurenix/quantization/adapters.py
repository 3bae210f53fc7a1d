"""Calibrators in TensorRT's shape: get_batch, get_batch_size, read and write_calibration_cache."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurenix.arrays import Array, to_numpy
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.quantization.calibrators import ALGORITHMS, Calibrator
from neurenix.quantization.data import Port


class Adapter(Calibrator):
    """What a calibrator in TensorRT's shape gives. Its `get_batch(names)` gives arrays in the order of the names, a
    dict of them, addresses in the processor's memory of float32 numbers, or None when there are no more."""

    # A calibrator with a cache is not asked for batches: scripts give none then.
    reads_twice = False

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.given = given
        word = getattr(given.get_algorithm(), "name", "") if hasattr(given, "get_algorithm") else ""
        self.method = ALGORITHMS.get(word, "entropy")
        if word == "LEGACY_CALIBRATION" and hasattr(given, "get_quantile"):
            quantile = float(given.get_quantile())
            self.percentile = 100 * quantile if 0 < quantile <= 1 else self.percentile

    def read(self, inputs: Sequence[Port]) -> Iterator[dict[str, Array]]:
        """The batches, until there are no more."""
        names = [name for name, _ in inputs]
        while True:
            batch = self.given.get_batch(names)
            if batch is None or (isinstance(batch, (list, tuple, dict)) and not batch):
                return
            given = _of_inputs(batch, names)
            yield {name: self._array(value, shape) for (name, shape), value in zip(inputs, given, strict=True)}

    def read_calibration_cache(self) -> bytes | None:
        """What the calibrator has kept."""
        found = self.given.read_calibration_cache()
        if found is None or len(found) == 0:
            return None
        return found.encode() if isinstance(found, str) else bytes(found)

    def write_calibration_cache(self, cache: bytes) -> None:
        """Lets the calibrator keep a cache."""
        self.given.write_calibration_cache(cache)

    def _array(self, value: Any, shape: Sequence[int | str]) -> Array:
        if hasattr(value, "shape"):
            return to_numpy(value)
        size = self.given.get_batch_size()
        extents = [extent if isinstance(extent, int) else size for extent in shape[:1]] + list(shape[1:])
        if not all(isinstance(extent, int) for extent in extents):
            raise UnsupportedError(
                "get_batch gives an address, and the shape of the input is not known",
                expected="an array",
                got=f"{value!r} for {tuple(shape)}",
            )
        begin: Any = value.value if isinstance(value, ctypes.c_void_p) else value
        try:
            # Those of pycuda are no ints, but say one.
            begin = int(begin)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                "get_batch gives neither arrays nor addresses", got=type(value).__name__
            ) from error
        count = int(np.prod(extents))
        if not _is_readable(begin, begin + 4 * count):
            raise UnsupportedError(
                "get_batch gives an address that the processor can't read",
                expected=f"{4 * count} bytes of its memory",
                got=f"{begin:#x}, which may be a GPU's",
                hint="give arrays, or tensors of torch on any device",
            )
        numbers: Any = (ctypes.c_float * count).from_address(begin)
        made: Array = np.array(numbers, np.float32).reshape([int(extent) for extent in extents])
        return made


def _of_inputs(batch: Any, names: Sequence[str]) -> list[Any]:
    """What a batch has for each input; of a model with one input that may stand alone."""
    if isinstance(batch, dict):
        missing = [name for name in names if name not in batch]
        given = [] if missing else [batch[name] for name in names]
        got = ", ".join(map(repr, batch))
    else:
        given = list(batch) if isinstance(batch, (list, tuple)) else [batch]
        got = f"{len(given)} things"
    if len(given) != len(names):
        raise InvalidArgumentError(
            "get_batch does not give an array for each input", expected=", ".join(map(repr, names)), got=got
        )
    return given


def _is_readable(begin: int, end: int) -> bool:
    """Whether the processor may read these bytes; where the system does not tell, whether they can be any."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return begin > 0
    for line in lines:
        span, rights = line.split()[:2]
        low, high = (int(word, 16) for word in span.split("-"))
        # Spans are in order, and those beside each other may be read in one.
        if low <= begin < high and rights.startswith("r"):
            begin = high
        if begin >= end:
            return True
    return False
