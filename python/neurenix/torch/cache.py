"""Engines of partitions that other processes find: files by what they depend on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from neurenix import _native, arrays
from neurenix.errors import Error
from neurenix.hardware.backend import Backend
from neurenix.hardware.optimized import OptimizedModel
from neurenix.log import LOG
from neurenix.torch.settings import Settings

#: Raised when an engine for the same description would be called in another way, or take other weights otherwise.
_FORMAT = 2


def place(settings: Settings, described: Callable[[], tuple[str, Sequence[tuple[str, torch.Tensor]]]]) -> Path | None:
    """The file of an engine that depends on a text and on the elements of tensors; None where nothing is kept."""
    folder = _folder(settings)
    if folder is None:
        return None
    text, tensors = described()
    digest = hashlib.sha256()
    versions = f"{_FORMAT} {torch.__version__} {_native.__version__} {_native.device('cpu')}"
    for part in (versions, text):
        digest.update(part.encode() + b"\0")
    for name, tensor in tensors:
        elements = arrays.to_numpy(tensor.contiguous())
        digest.update(f"{name} {elements.dtype} {elements.shape}\0".encode())
        digest.update(elements.reshape(-1).view("uint8").data if elements.size else b"")
    return folder / f"{digest.hexdigest()}.engine"


def _folder(settings: Settings) -> Path | None:
    if settings.cache is False:
        return None
    if isinstance(settings.cache, str):
        return Path(settings.cache)
    kept = _native.cache_dir()
    return None if kept is None else Path(kept) / "torch"


def opened(path: Path, backend: Backend) -> OptimizedModel | None:
    """The engine of a file; None where there is none, or none that can be used."""
    try:
        if not path.is_file():
            return None
        model = backend.load(path)
        os.utime(path)
    except (Error, OSError) as error:
        LOG.info("%s in the cache is not used: %s", path.name, error)
        return None
    return model


def keep(path: Path, model: OptimizedModel, settings: Settings) -> None:
    """Saves an engine, and removes those that were used least lately where there are too many bytes."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        model.save(path)
        _shrink(path.parent, settings.cache_size)
    except (Error, OSError) as error:
        LOG.info("an engine is not kept for other processes: %s", error)


def _shrink(folder: Path, most: int) -> None:
    found = []
    for path in folder.glob("*.engine"):
        with contextlib.suppress(OSError):
            state = path.stat()
            found.append((state.st_mtime, state.st_size, path))
    held = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if held <= most:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            held -= size
