"""Neurenix: takes a trained model and gives the fastest correct inference that the machine at hand can give."""

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
    ShapeError,
    UnsupportedError,
)

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
    "ShapeError",
    "Tensor",
    "UnsupportedError",
    "__version__",
]
