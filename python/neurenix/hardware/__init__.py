"""Backends by name, and which of them is the default."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from neurenix import names
from neurenix.errors import InvalidArgumentError
from neurenix.hardware import probe
from neurenix.hardware.async_queue import AsyncQueue
from neurenix.hardware.backend import DEFAULT, Backend, CudaBackend, DeviceInfo
from neurenix.hardware.dry_run import DryRun
from neurenix.hardware.optimized import OptimizedModel
from neurenix.hardware.tensorrt.backend import TensorRTBackend

__all__ = [
    "AsyncQueue",
    "Backend",
    "CudaBackend",
    "DeviceInfo",
    "DryRun",
    "OptimizedModel",
    "TensorRTBackend",
    "backends",
    "get_backend",
    "load",
    "optimize",
    "set_default",
    "use",
]

_CLASSES: dict[str, type[Backend]] = {"tensorrt": TensorRTBackend, "cuda": CudaBackend, "cpu": Backend}
_default = DEFAULT
_used: ContextVar[str | None] = ContextVar("backend", default=None)


def backends() -> list[str]:
    """The backends whose own provider can run here, the preferred one first."""
    return [name for name in _CLASSES if probe.state(name).available]


def get_backend(name: str | None = None, **options: Any) -> Backend:
    """The backend of a name: "tensorrt", "cuda", "cpu"; without one the default (or that of `use`).

    A backend whose provider can't run here falls back to the next one; the log and `report()` say why.

    Raises `InvalidArgumentError` for an unknown name.
    """
    return _CLASSES[_known(name or _used.get() or _default)](**options)


def set_default(name: str) -> None:
    """Makes a backend the default; it is "tensorrt", the one with the longest chain of providers, at first."""
    global _default
    _default = _known(name)


def optimize(model: Any, input_shapes: Any = None, precision: str | None = None, **options: Any) -> OptimizedModel:
    """Makes a model ready for this machine: `optimize_model` of the default backend (or that of `use`)."""
    return get_backend().optimize_model(model, input_shapes, precision, **options)


def load(path: str | os.PathLike[str], **options: Any) -> OptimizedModel:
    """Opens a saved engine: `load` of the default backend (or that of `use`)."""
    return get_backend().load(path, **options)


@contextlib.contextmanager
def use(name: str) -> Iterator[Backend]:
    """Makes a backend the default inside a `with`, for this thread or task alone."""
    token = _used.set(_known(name))
    try:
        yield get_backend(name)
    finally:
        _used.reset(token)


def _known(name: str) -> str:
    if isinstance(name, str) and name in _CLASSES:
        return name
    raise InvalidArgumentError(
        f"there is no backend {name!r}", expected=", ".join(_CLASSES), hint=names.hint(name, _CLASSES)
    )
