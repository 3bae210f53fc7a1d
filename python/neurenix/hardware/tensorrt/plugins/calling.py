"""Calls of a user's code: whatever it raises becomes an error that says which method did."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from neurenix.errors import Error, OutOfMemoryError, PluginError


@contextlib.contextmanager
def calling(method: str) -> Iterator[None]:
    """Names the method in what is raised inside."""
    try:
        yield
    except Error as error:
        error.message = f"{method}: {error.message}"
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"{method} ran out of memory: {error}") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        # The last frame in code of the user's: where he looks first.
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        raise PluginError(f"{method} raised {type(error).__name__}: {error}{place}") from error
