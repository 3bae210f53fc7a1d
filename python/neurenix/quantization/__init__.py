"""Quantization: calibrators, which find the ranges of tensors, and calibrated networks."""

from neurenix.quantization.accuracy import Accuracy
from neurenix.quantization.cache import CalibrationCache
from neurenix.quantization.calibrate import calibrate, quantize_weights
from neurenix.quantization.calibrators import (
    Calibrator,
    DataLoaderCalibrator,
    EntropyCalibrator,
    MinMaxCalibrator,
    MSECalibrator,
    PercentileCalibrator,
)
from neurenix.quantization.sensitivity import LayerLoss, sensitivity
from neurenix.quantization.to_onnx import to_onnx

__all__ = [
    "Accuracy",
    "CalibrationCache",
    "Calibrator",
    "DataLoaderCalibrator",
    "EntropyCalibrator",
    "LayerLoss",
    "MSECalibrator",
    "MinMaxCalibrator",
    "PercentileCalibrator",
    "calibrate",
    "quantize_weights",
    "sensitivity",
    "to_onnx",
]
