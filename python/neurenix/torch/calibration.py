"""Batches of a module to calibrate on, as the engines of its parts need them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware.tensorrt import CalibrationAlgoType

#: Ways to find ranges by the words of `neurenix.quantization`, in TensorRT's.
_ALGORITHMS = {
    "entropy": CalibrationAlgoType.ENTROPY_CALIBRATION_2,
    "minmax": CalibrationAlgoType.MINMAX_CALIBRATION,
    "percentile": CalibrationAlgoType.LEGACY_CALIBRATION,
}


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
    """Batches, a calibrator of ours, or one in TensorRT's shape, as a source."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.algo_type = CalibrationAlgoType.ENTROPY_CALIBRATION_2
        method = getattr(given, "method", None)
        if hasattr(given, "get_algorithm"):
            self.algo_type = given.get_algorithm()
        elif isinstance(method, str):
            if method not in _ALGORITHMS:
                raise UnsupportedError(
                    "this method of calibration is not supported for modules",
                    expected=", ".join(_ALGORITHMS),
                    got=method,
                )
            self.algo_type = _ALGORITHMS[method]

    def batches(self) -> Iterable[Any]:
        given = self._given
        if hasattr(given, "get_batch"):
            return iter(lambda: given.get_batch([]), None)
        found = given.batches if hasattr(given, "method") else given
        if isinstance(found, (torch.Tensor, tuple, Mapping)) or hasattr(found, "shape"):
            return [found]
        if not isinstance(found, Iterable) or isinstance(found, (str, bytes)):
            raise InvalidArgumentError(
                "this gives no batches to calibrate on",
                expected="an iterable of what the module is called with",
                got=type(found).__name__,
            )
        return found

    def read_cache(self, number: int) -> bytes | None:
        return None

    def write_cache(self, number: int, cache: bytes) -> None:
        """Batches alone have no file to keep ranges in."""


class PartCalibrator:
    """The calibrator of one engine, in TensorRT's shape: `inputs` are the engine's, by name, for each batch."""

    def __init__(self, source: CalibrationSource, number: int, inputs: Iterator[Mapping[str, torch.Tensor]]) -> None:
        self._source, self._number, self._inputs = source, number, inputs

    def get_algorithm(self) -> CalibrationAlgoType:
        """How ranges are found."""
        return self._source.algo_type

    def get_quantile(self) -> float:
        """The share of the magnitudes that a range holds."""
        return 0.9999

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
        self, given: Any, module: torch.nn.Module, kwargs: Mapping[str, Any], parts: int, device: torch.device
    ) -> None:
        self._source: CalibrationSource = given if isinstance(given, CalibrationSource) else _Given(given)
        self._module, self._device = module, device
        self._names = list(inspect.signature(module.forward).parameters)
        self._kwargs = dict(kwargs)
        found = self._source.batches()
        # Each part needs all of them.
        self._batches = list(found) if parts > 1 and iter(found) is found else found
        #: Who takes the arguments of a run.
        self.wanted: object | None = None

    def of(self, part: object, number: int, named: Callable[[Sequence[Any]], dict[str, torch.Tensor]]) -> Any:
        """The calibrator of a part; `named` makes the inputs of its engine from its arguments."""
        return PartCalibrator(self._source, number, map(named, self._arguments(part)))

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
