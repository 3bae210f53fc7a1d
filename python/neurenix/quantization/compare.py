"""How far a quantized network is from itself in float32."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from neurenix import _native
from neurenix._native import Network
from neurenix.arrays import Array
from neurenix.shapes import sized

#: So many batches are compared.
COMPARED = 2

Batch = Mapping[str, Array]


def untimed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Native options for an engine in float32 that is built fast, and once."""
    plain = {"verify": False, "optimization_level": 0, "compute": "float32", "tf32": False, "refittable": False}
    return {name: value for name, value in options.items() if name != "samples"} | plain


def as_called(batch: Batch, options: Mapping[str, Any]) -> dict[str, Array]:
    """A batch in the dtypes that calls take: with `io_dtype`, floats are of that."""
    io = options.get("io")
    if io is None:
        return dict(batch)
    floats = ("float32", "float16", "bfloat16")
    wanted = np.dtype(getattr(ml_dtypes, io, io))
    return {name: array.astype(wanted) if array.dtype.name in floats else array for name, array in batch.items()}


class Ratios:
    """The signal-to-noise ratio of each floating-point output, over batches."""

    def __init__(self) -> None:
        self._signal: dict[str, float] = {}
        self._noise: dict[str, float] = {}

    def add(self, wanted: Batch, got: Batch) -> None:
        """Counts the outputs of a batch."""
        for name, array in wanted.items():
            if np.asarray(array).dtype.kind in "iub":
                continue
            wide, other = np.asarray(array, np.float64), np.asarray(got[name], np.float64)
            if wide.shape != other.shape:
                # A size that depends on data is another one: there is nothing to compare.
                self._signal[name], self._noise[name] = self._signal.get(name, 0.0), math.inf
                continue
            # Where float32 is not finite, as logarithms of masks are, the same is no loss.
            same = ~np.isfinite(wide) & ((wide == other) | (np.isnan(wide) & np.isnan(other)))
            wide, other = np.where(same, 0.0, wide), np.where(same, 0.0, other)
            self._signal[name] = self._signal.get(name, 0.0) + float(np.sum(wide**2))
            self._noise[name] = self._noise.get(name, 0.0) + float(np.sum((other - wide) ** 2))

    def decibels(self) -> dict[str, float]:
        """In dB; minus infinity where an output is not finite, or has another shape."""
        return {name: _decibels(self._signal[name], self._noise[name]) for name in self._signal}

    def least(self) -> float:
        """That of the worst output; infinity where there is none of floating point."""
        return min(self.decibels().values(), default=math.inf)


#: Calls behind each other that are timed on a GPU.
CALLS = 20


class Reference:
    """What a network gives in float32 on the first `count` batches."""

    def __init__(
        self,
        network: Network,
        batches: Sequence[Batch],
        profiles: Sequence[Any],
        options: Mapping[str, Any],
        count: int = COMPARED,
    ) -> None:
        self.engine = _native.Engine.build(network, list(profiles), untimed(options))
        self.batches = [fitting(batch, self.engine) for batch in batches[:count]]
        self._wanted = [dict(self.engine.run(batch)) for batch in self.batches]

    def losses(self, engine: _native.Engine) -> dict[str, float]:
        """The signal-to-noise ratio of each floating-point output in dB; minus infinity where one is not finite."""
        found = Ratios()
        for batch, wanted in zip(self.batches, self._wanted, strict=True):
            found.add(wanted, dict(engine.run(batch)))
        return found.decibels()


def fitting(batch: Batch, engine: _native.Engine) -> dict[str, Array]:
    """A batch whose first dimensions lie in the first profile: cut, or with the first samples again."""
    return _resized(batch, engine, lambda count, least, _, most: min(max(count, least), most))


def at_opt(batch: Batch, engine: _native.Engine) -> dict[str, Array]:
    """As `fitting`, with the first dimensions that the first profile is optimised for."""
    return _resized(batch, engine, lambda _, least, opt, most: opt)


def _first_profile(engine: _native.Engine) -> dict[str, tuple[int, int, int]]:
    """The ranges of its symbols; none where the sizes of tensors depend on data."""
    return dict(next(iter(engine.profiles), {}))


def _resized(batch: Batch, engine: _native.Engine, count: Callable[[int, int, int, int], int]) -> dict[str, Array]:
    ranges = _first_profile(engine)
    found = dict(batch)
    for name, _, shape in engine.inputs:
        if shape and isinstance(shape[0], str) and shape[0].strip("'") in ranges:
            samples = count(len(found[name]), *ranges[shape[0].strip("'")])
            found[name] = np.resize(found[name], (samples, *found[name].shape[1:]))
    return found


def made_up(engine: _native.Engine) -> dict[str, Array]:
    """Normal numbers, and zeros of other dtypes, for an engine to be timed on, at the shapes that the first profile is
    optimised for."""
    random = np.random.default_rng(0)
    opt = {name: most_likely for name, (_, most_likely, _) in _first_profile(engine).items()}
    found: dict[str, Array] = {}
    for name, dtype, shape in engine.inputs:
        sizes = sized(shape, opt)
        floats = dtype.kind not in "iub"
        found[name] = random.standard_normal(sizes).astype(dtype) if floats else np.zeros(sizes, dtype)
    return found


def milliseconds(engines: Sequence[_native.Engine], batch: Batch, rounds: int) -> list[float]:
    """The median time of a call of each engine, which run in turn; on a GPU that of one of several behind each other,
    on arrays that stay there."""
    times: list[list[float]] = [[] for _ in engines]
    given = dict(batch)
    if all(engine.devices for engine in engines):
        for _ in range(rounds):
            for taken, engine in zip(times, engines, strict=True):
                taken.append(engine.time_on_device(given, CALLS) / 1e6)
        return [statistics.median(taken) for taken in times]
    for _ in range(rounds):
        for taken, engine in zip(times, engines, strict=True):
            engine.run(given)
            begin = time.perf_counter()
            engine.run(given)
            taken.append(1e3 * (time.perf_counter() - begin))
    return [statistics.median(taken) for taken in times]


def _decibels(signal: float, noise: float) -> float:
    if not math.isfinite(noise) or signal == 0.0:
        return -math.inf if noise else math.inf
    return math.inf if noise == 0.0 else 10 * math.log10(signal / noise)
