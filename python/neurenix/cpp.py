"""Where compilers and CMake find the C API: `neurenix/neurenix.h`, `libneurenix.so.1` and the package for CMake.

cmake -B build -Dneurenix_DIR=$(python -c "import neurenix.cpp; print(neurenix.cpp.cmake_dir())")
"""

from __future__ import annotations

from pathlib import Path

import neurenix
from neurenix.errors import UnsupportedError

_FOLDER = Path(neurenix.__file__).parent


def include_dir() -> str:
    """The folder in which compilers find `neurenix/neurenix.h` and `neurenix/plugin.h`.

    Raises `UnsupportedError` for an installation that lacks them.
    """
    return str(_there(_FOLDER / "_include", "neurenix/neurenix.h", "the headers", "install Neurenix again"))


def library() -> str:
    """The path of the shared library of the C API; beside it lie those that it needs.

    Raises `UnsupportedError` for an installation that lacks it: one that pip built from a checkout in which `just capi`
    was not called before.
    """
    hint = "call `just capi` in the checkout, and install it again; wheels that `just wheel` makes have it"
    return str(_there(_FOLDER / "_lib", "libneurenix.so.1", "the library of the C API", hint) / "libneurenix.so.1")


def cmake_dir() -> str:
    """The folder of `neurenixConfig.cmake`, for CMake's `neurenix_DIR`. Raises as `library`."""
    library()
    return str(_there(_FOLDER / "cmake", "neurenixConfig.cmake", "the package for CMake", "install Neurenix again"))


def _there(folder: Path, file: str, what: str, hint: str) -> Path:
    if not (folder / file).is_file():
        raise UnsupportedError(f"this installation lacks {what}", expected=str(folder / file), hint=hint)
    return folder
