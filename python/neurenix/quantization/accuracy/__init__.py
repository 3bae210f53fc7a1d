"""Tools that lower the error of 8 bits: equalisation, smoothing, scales of tokens, rounding, corrected biases."""

from neurenix.quantization.accuracy.tools import Tools, check, needed_batches
from neurenix.quantization.accuracy.words import OF_WEIGHTS, PER_TOKEN, TOOLS, Accuracy, read

__all__ = ["OF_WEIGHTS", "PER_TOKEN", "TOOLS", "Accuracy", "Tools", "check", "needed_batches", "read"]
