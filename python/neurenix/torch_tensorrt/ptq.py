"""Calibrators, by Torch-TensorRT's names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from neurenix import files
from neurenix.errors import FileError, InvalidArgumentError
from neurenix.hardware.tensorrt import CalibrationAlgoType as CalibrationAlgo
from neurenix.torch.calibration import numbered

__all__ = ["CacheCalibrator", "CalibrationAlgo", "DataLoaderCalibrator"]


class DataLoaderCalibrator:
    """Batches of a data loader to calibrate with: what the module is called with, labels behind it being left out.

    `cache_file`: where the ranges that were found are written, in TensorRT's text, and with `use_cache=True` read from
    where it is there. A module of several engines has a file for each: the second one's name ends with ".1".

    Raises `InvalidArgumentError` for what gives no batches.
    """

    def __init__(
        self,
        dataloader: Any,
        *,
        cache_file: str | os.PathLike[str] | None = None,
        use_cache: bool = False,
        algo_type: CalibrationAlgo = CalibrationAlgo.ENTROPY_CALIBRATION_2,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        if not hasattr(dataloader, "__iter__") or isinstance(dataloader, (str, bytes)):
            raise InvalidArgumentError(
                "this gives no batches", expected="a DataLoader or another iterable", got=type(dataloader).__name__
            )
        self.dataloader = dataloader
        self.cache_file = None if cache_file is None else os.fspath(cache_file)
        self.use_cache = use_cache
        self.algo_type = _algorithm(algo_type)
        self.device = device

    def batches(self) -> Iterable[Any]:
        """The batches."""
        found: Iterable[Any] = self.dataloader
        return found

    def read_cache(self, number: int) -> bytes | None:
        """The ranges of an engine, by its number; None to calibrate."""
        path = numbered(self.cache_file, number)
        return path.read_bytes() if self.use_cache and path is not None and path.is_file() else None

    def write_cache(self, number: int, cache: bytes) -> None:
        """Keeps the ranges of an engine. Raises `FileError` when the file can't be written."""
        path = numbered(self.cache_file, number)
        if path is None:
            return
        try:
            path.write_bytes(cache)
        except OSError as error:
            raise FileError(
                f"the calibration cache can't be written: {error.strerror or error}", got=str(path)
            ) from error


class CacheCalibrator:
    """Ranges that were found before, in the `cache_file` of a `DataLoaderCalibrator`."""

    def __init__(
        self,
        cache_file: str | os.PathLike[str],
        *,
        algo_type: CalibrationAlgo = CalibrationAlgo.ENTROPY_CALIBRATION_2,
        **kwargs: Any,
    ) -> None:
        self.cache_file = os.fspath(cache_file)
        self.algo_type = _algorithm(algo_type)

    def batches(self) -> Iterable[Any]:
        """None: the ranges are known."""
        return ()

    def read_cache(self, number: int) -> bytes | None:
        """The ranges of an engine, by its number. Raises `FileError` when the file can't be read."""
        path = numbered(self.cache_file, number)
        assert path is not None
        try:
            return files.read(path, "the calibration cache")
        except FileError as error:
            raise FileError(
                error.message, got=error.got, hint="DataLoaderCalibrator(loader, cache_file=...) writes it"
            ) from error

    def write_cache(self, number: int, cache: bytes) -> None:
        """Leaves the file as it is."""


def _algorithm(given: Any) -> CalibrationAlgo:
    if isinstance(given, CalibrationAlgo):
        return given
    raise InvalidArgumentError("this is no algo_type", expected="a CalibrationAlgo", got=repr(given))
