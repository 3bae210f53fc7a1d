"""Torch-TensorRT's names: `import neurenix.torch_tensorrt as torch_tensorrt`.

Importing it makes `torch.compile(model, backend="tensorrt")` and `backend="torch_tensorrt"` mean the backend "neurenix"
where Torch-TensorRT is not installed; where it is, these names stay its own.
"""

from __future__ import annotations

from typing import Any

from neurenix.torch import needed  # isort: skip  # noqa: F401 - first: it says where torch is missing
import torch

import neurenix.torch
from neurenix._native import __version__
from neurenix.packages import is_installed
from neurenix.torch.registering import register as _register
from neurenix.torch_tensorrt import dynamo, ptq, runtime
from neurenix.torch_tensorrt.compiling import compile, convert_method_to_trt_engine, load, save
from neurenix.torch_tensorrt.inputs import Device, DeviceType, EngineCapability, Input, dtype, memory_format
from neurenix.torch_tensorrt.mutable import MutableTorchTensorRTModule

__all__ = [
    "Device",
    "DeviceType",
    "EngineCapability",
    "Input",
    "MutableTorchTensorRTModule",
    "__version__",
    "compile",
    "convert_method_to_trt_engine",
    "dtype",
    "dynamo",
    "load",
    "memory_format",
    "ptq",
    "runtime",
    "save",
    "set_device",
]


def set_device(gpu_id: int) -> None:
    """Makes a GPU torch's current one."""
    torch.cuda.set_device(gpu_id)


def _is_torch_tensorrt_installed() -> bool:
    return is_installed("torch_tensorrt")


def _register_backends() -> None:
    if _is_torch_tensorrt_installed():
        return
    for name in ("tensorrt", "torch_tensorrt"):
        _register(name, neurenix.torch.neurenix)


def __getattr__(name: str) -> Any:
    if name in ("logging", "ts", "fx"):
        from neurenix.errors import UnsupportedError

        raise UnsupportedError(f"torch_tensorrt.{name} is not supported", hint='use compile(..., ir="dynamo" or "ts")')
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_register_backends()
