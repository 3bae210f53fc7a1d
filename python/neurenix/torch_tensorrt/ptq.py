"""Calibrators, by Torch-TensorRT's names."""

from __future__ import annotations

import os
from typing import Any

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt import CalibrationAlgoType as CalibrationAlgo

__all__ = ["CacheCalibrator", "CalibrationAlgo", "DataLoaderCalibrator"]


class DataLoaderCalibrator:
    """Batches of a data loader to calibrate with, and a file of the scales that were found.

    `compile` refuses it for now: int8 is not there yet.
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
        if not hasattr(dataloader, "__iter__"):
            raise InvalidArgumentError("this gives no batches", expected="an iterable", got=type(dataloader).__name__)
        self.dataloader = dataloader
        self.cache_file = None if cache_file is None else os.fspath(cache_file)
        self.use_cache = use_cache
        self.algo_type = algo_type
        self.device = device


class CacheCalibrator:
    """A file of scales that were found before. `compile` refuses it for now: int8 is not there yet."""

    def __init__(
        self,
        cache_file: str | os.PathLike[str],
        *,
        algo_type: CalibrationAlgo = CalibrationAlgo.ENTROPY_CALIBRATION_2,
        **kwargs: Any,
    ) -> None:
        self.cache_file = os.fspath(cache_file)
        self.algo_type = algo_type
