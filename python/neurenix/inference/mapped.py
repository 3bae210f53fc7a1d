"""Mapped files with room on the disk: a page that finds none when it is written ends the process (SIGBUS)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from neurenix.errors import FileError


def reserve(file: int, path: str) -> None:
    """Takes the room on the disk that a file's length says it needs.

    Raises `FileError` where there is not that much; `path` is what it calls the file.
    """
    size = os.fstat(file).st_size
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        raise FileError(
            f"there is no room for the output: {error.strerror}", expected=f"{size} bytes on the disk", got=path
        ) from error


def temporary(shape: Sequence[int], dtype: Any) -> np.memmap[Any, Any]:
    """Zeros in a file without a name, which is gone with the array.

    Raises `FileError` where the disk has no room for it.
    """
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile() as file:
            made = np.memmap(file, dtype, "w+", shape=tuple(shape))
            reserve(file.fileno(), folder)
            return made
    except FileError as error:
        error.hint = "TMPDIR names another folder for temporary files; out= and a greater max_memory= need none"
        raise
    except OSError as error:
        raise FileError(f"no temporary file can be made: {error.strerror}", got=folder) from error


def reserved(made: np.memmap[Any, Any], path: os.PathLike[str]) -> np.memmap[Any, Any]:
    """A new mapped file, with its room taken; without room it is removed.

    Raises `FileError`.
    """
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        reserve(file, os.fspath(path))
    except FileError:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(file)
    return made
