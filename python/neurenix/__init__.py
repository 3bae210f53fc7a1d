"""Neurenix: takes a trained model and gives the fastest correct inference that the machine at hand can give."""

__distribution__ = "neurenix-engine"

import atexit

from neurenix import interpreter, installed  # isort: skip  # noqa: F401 - they refuse where nothing else would work
from neurenix import openmp  # isort: skip  # noqa: F401 - before anything loads the native module
from neurenix import _native, hardware, importers, inference, nn, plugins, quantization, random
from neurenix._native import Layer, Network, Tensor, __version__
from neurenix.errors import (
    DeviceError,
    DTypeError,
    Error,
    FileError,
    FormatError,
    InternalError,
    InvalidArgumentError,
    MissingPackageError,
    OutOfMemoryError,
    PluginError,
    ShapeError,
    UnsupportedError,
)
from neurenix.hardware import load, optimize
from neurenix.shapes import Shape


def __getattr__(name: str) -> object:
    if name == "compile":
        # PyTorch is imported when something needs it.
        from neurenix.torch_tensorrt import compile

        return compile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Functions that were registered later run earlier, and may still call engines in other threads.
atexit.register(_native.end)

__all__ = [
    "DTypeError",
    "DeviceError",
    "Error",
    "FileError",
    "FormatError",
    "InternalError",
    "InvalidArgumentError",
    "Layer",
    "MissingPackageError",
    "Network",
    "OutOfMemoryError",
    "PluginError",
    "Shape",
    "ShapeError",
    "Tensor",
    "UnsupportedError",
    "__version__",
    "hardware",
    "importers",
    "inference",
    "load",
    "nn",
    "optimize",
    "plugins",
    "quantization",
    "random",
]
