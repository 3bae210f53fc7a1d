"""Batches of a module to calibrate on, as the engines of its parts need them."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt import CalibrationAlgoType
from neurenix.quantization.adapters import Adapter
from neurenix.quantization.calibrators import Calibrator
from neurenix.quantization.data import Port


@runtime_checkable
class CalibrationSource(Protocol):
    """What calibrates a module: its batches, how ranges are found, and a cache for each of its engines."""

    algo_type: CalibrationAlgoType

    def batches(self) -> Iterable[Any]:
        """What the module is called with."""

    def read_cache(self, number: int) -> bytes | None:
        """The ranges of an engine, by its number; None to calibrate."""

    def write_cache(self, number: int, cache: bytes) -> None:
        """Keeps the ranges of an engine."""


class _Given:
    """Batches, or a calibrator in TensorRT's shape, as a source; `ports` are the inputs of the module."""

    algo_type = CalibrationAlgoType.ENTROPY_CALIBRATION_2

    def __init__(self, given: Any, ports: Sequence[Port]) -> None:
        self._given, self._ports = given, ports
        if hasattr(given, "get_algorithm"):
            self.algo_type = given.get_algorithm()
        if hasattr(given, "get_quantile"):
            self.quantile = float(given.get_quantile())

    def batches(self) -> Iterable[Any]:
        if hasattr(self._given, "get_batch"):
            return Adapter(self._given).read(self._ports)
        return _batches(self._given)

    def read_cache(self, number: int) -> bytes | None:
        # Its one cache is that of the first engine.
        reads = number == 0 and hasattr(self._given, "read_calibration_cache")
        return self._given.read_calibration_cache() if reads else None

    def write_cache(self, number: int, cache: bytes) -> None:
        if number == 0 and hasattr(self._given, "write_calibration_cache"):
            self._given.write_calibration_cache(cache)


def _batches(given: Any) -> Iterable[Any]:
    if isinstance(given, (torch.Tensor, tuple, Mapping)) or hasattr(given, "shape"):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        raise InvalidArgumentError(
            "this gives no batches to calibrate on",
            expected="an iterable of what the module is called with",
            got=type(given).__name__,
        )
    return given


def numbered(cache_file: str | os.PathLike[str] | None, number: int) -> Path | None:
    """The file of an engine's ranges, by its number: each engine behind the first has one of its own."""
    if cache_file is None:
        return None
    return Path(cache_file) if number == 0 else Path(f"{os.fspath(cache_file)}.{number}")


class PartCalibrator:
    """The calibrator of one engine, in TensorRT's shape: `inputs` are the engine's, by name, for each batch."""

    def __init__(self, source: CalibrationSource, number: int, inputs: Iterator[Mapping[str, torch.Tensor]]) -> None:
        self._source, self._number, self._inputs = source, number, inputs

    def get_algorithm(self) -> CalibrationAlgoType:
        """How ranges are found."""
        return self._source.algo_type

    def get_quantile(self) -> float:
        """The share of the magnitudes that a range holds."""
        return float(getattr(self._source, "quantile", 0.9999))

    def get_batch_size(self) -> int:
        """Nothing that is needed: batches are arrays."""
        return 1

    def get_batch(self, names: Sequence[str]) -> list[torch.Tensor] | None:
        """The tensors of these names; None after the last batch."""
        found = next(self._inputs, None)
        return None if found is None else [found[name] for name in names]

    def read_calibration_cache(self) -> bytes | None:
        """The ranges, where they are known."""
        return self._source.read_cache(self._number)

    def write_calibration_cache(self, cache: bytes) -> None:
        """Keeps the ranges."""
        self._source.write_cache(self._number, bytes(cache))


class _Reached(Exception):
    """Ends a run at the part whose arguments are wanted."""

    def __init__(self, args: Sequence[Any]) -> None:
        super().__init__()
        self.args_there = args


class Calibration:
    """Runs a module in torch on batches, and tells what its parts get."""

    def __init__(
        self,
        given: Any,
        module: torch.nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        parts: int,
        device: torch.device,
    ) -> None:
        self._module, self._device = module, device
        self._names = list(inspect.signature(module.forward).parameters)
        self._kwargs = dict(kwargs)
        #: A calibrator of ours, which finds the ranges of each engine by itself.
        self._own = given if isinstance(given, Calibrator) else None
        if self._own is None:
            ports = [(name, list(getattr(arg, "shape", ()))) for name, arg in zip(self._names, args, strict=False)]
            self._source: CalibrationSource = given if isinstance(given, CalibrationSource) else _Given(given, ports)
            found = self._source.batches()
        elif self._own.batches is None and self._own.cache_file is not None:
            found = ()
        else:
            found = itertools.islice(_batches(self._own.batches), self._own.limit)
        # Each part needs all of them.
        self._batches = list(found) if parts > 1 and iter(found) is found else found
        #: Who takes the arguments of a run.
        self.wanted: object | None = None

    def of(self, part: object, number: int, named: Callable[[Sequence[Any]], dict[str, torch.Tensor]]) -> Any:
        """The calibrator of a part; `named` makes the inputs of its engine from its arguments."""
        inputs = map(named, self._arguments(part))
        if self._own is None:
            return PartCalibrator(self._source, number, inputs)
        mine = copy.copy(self._own)
        # Batches of the module are cut already, and come once.
        mine.batches, mine.limit, mine.seen, mine.reads_twice = inputs, None, [], False
        mine.cache_file = numbered(mine.cache_file, number)
        return mine

    def reached(self, part: object, args: Sequence[Any]) -> bool:
        """Told by a part that is called: whether it should run in torch, because another one is looked for."""
        if self.wanted is part:
            raise _Reached(args)
        return self.wanted is not None

    def _arguments(self, part: object) -> Iterator[Sequence[Any]]:
        for batch in self._batches:
            self.wanted = part
            try:
                with torch.no_grad():
                    self._module(*self._called_with(batch), **self._kwargs)
            except _Reached as found:
                yield found.args_there
            finally:
                self.wanted = None

    def _called_with(self, batch: Any) -> list[torch.Tensor]:
        names = [name for name in self._names if name not in self._kwargs]
        if isinstance(batch, Mapping):
            missing = [name for name in names if name not in batch]
            if missing:
                raise InvalidArgumentError(
                    "a batch to calibrate on lacks an input", expected=", ".join(names), got=", ".join(map(str, batch))
                )
            given = [batch[name] for name in names]
        else:
            # Loaders give labels behind what a module is called with.
            given = list(batch)[: len(names)] if isinstance(batch, (tuple, list)) else [batch]
        if len(given) != len(names):
            raise InvalidArgumentError(
                "a batch to calibrate on has too few tensors", expected=", ".join(names), got=str(len(given))
            )
        return [torch.as_tensor(one).to(self._device) for one in given]
