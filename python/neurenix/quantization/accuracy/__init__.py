"""Tools that lower the error of 8 bits: equalisation, smoothing, learned rounding, corrected biases."""

from neurenix.quantization.accuracy.tools import Tools, check, needed_batches
from neurenix.quantization.accuracy.words import OF_WEIGHTS, TOOLS, Accuracy, read

__all__ = ["OF_WEIGHTS", "TOOLS", "Accuracy", "Tools", "check", "needed_batches", "read"]
