"""Calls of a user's code: whatever it raises becomes an error that says which method did."""

from __future__ import annotations

import traceback
from types import TracebackType

from neurenix.errors import Error, OutOfMemoryError, PluginError


class calling:
    """Names the method in what is raised inside.

    A class, as contextlib's generators give a StopIteration back where it is the cause of a RuntimeError of ours.
    """

    def __init__(self, method: str) -> None:
        self._method = method

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Error):
            error.message = f"{self._method}: {error.message}"
        elif isinstance(error, MemoryError):
            raise OutOfMemoryError(f"{self._method} ran out of memory: {error}") from error
        elif isinstance(error, Exception):
            raise PluginError(f"{self._method} raised {type(error).__name__}: {error}{_place(trace)}") from error


def _place(trace: TracebackType | None) -> str:
    """The last frame, which is in code of the user's: where he looks first."""
    frames = traceback.extract_tb(trace)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
