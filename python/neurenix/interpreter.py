"""Refuses, by name and at import, the kinds of Python in which the native module can't work."""

from __future__ import annotations

import sys
from types import ModuleType


def refusal() -> str | None:
    """Why Neurenix does not run in this interpreter, and the way out; None where it does."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if "t" in getattr(sys, "abiflags", ""):
        return (
            f"Neurenix does not run on a free-threaded build of Python ({version}t): its native module needs the GIL\n"
            f"  hint: use the usual build, python{version}"
        )
    interpreters = _interpreters()
    if interpreters is not None and interpreters.get_current() != interpreters.get_main():
        return (
            "Neurenix does not run in a subinterpreter: its native module and numpy keep one state per process\n"
            "  hint: use threads, or processes; under mod_wsgi: WSGIApplicationGroup %{GLOBAL}"
        )
    return None


def _interpreters() -> ModuleType | None:
    """The module that knows the interpreters of this process, under its name in 3.13 and later or in those before."""
    try:
        import _interpreters as found  # type: ignore[import-not-found]
    except ImportError:
        try:
            import _xxsubinterpreters as found  # type: ignore[import-not-found]
        except ImportError:
            return None
    return found  # type: ignore[no-any-return]


if (_reason := refusal()) is not None:
    raise ImportError(_reason, name="neurenix")
