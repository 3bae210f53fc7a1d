"""Calibrators in TensorRT's shape: get_batch, get_batch_size, read and write_calibration_cache."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from neurenix.addresses import is_readable
from neurenix.arrays import Array, to_numpy
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.quantization.calibrators import ALGORITHMS, Calibrator
from neurenix.quantization.data import Port


class Adapter(Calibrator):
    """What a calibrator in TensorRT's shape gives. Its `get_batch(names)` gives arrays in the order of the names, a
    dict of them, addresses in the processor's memory of float32 numbers, or None when there are no more.

    `shapes` says, by the names of inputs, which dynamic extents the memory at an address has; where it does not, or
    has -1, `get_batch_size()` is the first one.
    """

    # A calibrator with a cache is not asked for batches: scripts give none then.
    reads_twice = False

    def __init__(self, given: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> None:
        super().__init__(given)
        self.given = given
        self.shapes = dict(shapes or {})
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
            yield {port[0]: self._array(value, port) for port, value in zip(inputs, given, strict=True)}

    def read_calibration_cache(self) -> bytes | None:
        """What the calibrator has kept."""
        found = self.given.read_calibration_cache()
        if found is None or len(found) == 0:
            return None
        return found.encode() if isinstance(found, str) else bytes(found)

    def write_calibration_cache(self, cache: bytes) -> None:
        """Lets the calibrator keep a cache."""
        self.given.write_calibration_cache(cache)

    def _extents(self, port: Port) -> list[int]:
        """The shape of the memory at an address. Raises `UnsupportedError` where nothing tells it."""
        name, shape = port
        told = dict(enumerate(self.shapes.get(name, ())))
        extents = [extent if isinstance(extent, int) else told.get(axis, -1) for axis, extent in enumerate(shape)]
        if extents and extents[0] < 0:
            extents[0] = int(self.given.get_batch_size())
        if any(extent < 0 for extent in extents):
            raise UnsupportedError(
                "get_batch gives an address, and the shape of the input is not known",
                tensor=name,
                expected="an array",
                got=f"an address for {tuple(shape)}",
                hint="say the shape in a profile: config.set_calibration_profile(profile)",
            )
        return extents

    def _array(self, value: Any, port: Port) -> Array:
        if hasattr(value, "shape"):
            return to_numpy(value)
        extents = self._extents(port)
        begin: Any = value.value if isinstance(value, ctypes.c_void_p) else value
        try:
            # Those of pycuda are no ints, but say one.
            begin = int(begin)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                "get_batch gives neither arrays nor addresses", got=type(value).__name__
            ) from error
        count = int(np.prod(extents))
        if not is_readable(begin, begin + 4 * count):
            raise UnsupportedError(
                "get_batch gives an address that the processor can't read",
                expected=f"{4 * count} bytes of its memory",
                got=f"{begin:#x}, which may be a GPU's",
                hint="give arrays, or tensors of torch on any device",
            )
        numbers: Any = (ctypes.c_float * count).from_address(begin)
        made: Array = np.array(numbers, np.float32).reshape(extents)
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
