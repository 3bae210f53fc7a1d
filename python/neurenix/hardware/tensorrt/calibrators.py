"""TensorRT's calibrators, to derive from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.build_enums import CalibrationAlgoType
from neurenix.quantization.calibrators import Calibrator


class IInt8Calibrator:
    """Gives batches to calibrate on, and keeps the cache: derive, and have `get_batch_size` and `get_batch`."""

    _algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION_2

    def get_algorithm(self) -> CalibrationAlgoType:
        """How ranges follow from the numbers."""
        return self._algorithm

    def get_batch_size(self) -> int:
        """The first extent of each input."""
        raise NotImplementedError(f"{type(self).__name__} must have get_batch_size()")

    def get_batch(self, names: Sequence[str]) -> Sequence[Any] | None:
        """Arrays, or addresses in the processor's memory, for the inputs of these names; None when there are no
        more."""
        raise NotImplementedError(f"{type(self).__name__} must have get_batch(names)")

    def read_calibration_cache(self) -> bytes | None:
        """A cache that was kept; None to calibrate."""
        return None

    def write_calibration_cache(self, cache: bytes) -> None:
        """Keeps a cache: TensorRT's text."""


class IInt8EntropyCalibrator(IInt8Calibrator):
    """As IInt8EntropyCalibrator2, in whose way ranges are found here."""

    _algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION


class IInt8EntropyCalibrator2(IInt8Calibrator):
    """The range whose 8 bits lose least information."""


class IInt8MinMaxCalibrator(IInt8Calibrator):
    """The greatest magnitude."""

    _algorithm = CalibrationAlgoType.MINMAX_CALIBRATION


class IInt8LegacyCalibrator(IInt8Calibrator):
    """The magnitude within which `get_quantile()` of the numbers are."""

    _algorithm = CalibrationAlgoType.LEGACY_CALIBRATION

    def get_quantile(self) -> float:
        """The share of magnitudes that the range holds."""
        return 0.9999

    def get_regression_cutoff(self) -> float:
        """Not used."""
        return 1.0


class FixedRanges(Calibrator):
    """The ranges that `ITensor.set_dynamic_range` told."""

    def __init__(self, known: Mapping[str, float]) -> None:
        super().__init__()
        self._known = dict(known)

    def ranges(
        self,
        levels: dict[str, int],
        inputs: Any,
        run: Any,
        jobs: int = 1,
        *,
        spare: Collection[str] = (),
        residuals: Collection[str] = (),
    ) -> dict[str, float]:
        """Those of these tensors. Raises `InvalidArgumentError`, which names those without one."""
        missing = [name for name in levels if name not in self._known and name not in spare]
        if missing:
            raise InvalidArgumentError(
                "tensors that are quantized have no range",
                expected=f"set_dynamic_range of {', '.join(map(repr, missing[:8]))}",
                got=f"ranges of {len(self._known)} tensors",
                hint="set them, or give the configuration an int8_calibrator",
            )
        return {name: self._known[name] for name in levels if name in self._known}
