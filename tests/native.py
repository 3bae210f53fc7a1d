"""What tests of C and C++ are built against: the library of the C API, and the package for CMake around it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import neurenix

ROOT = Path(__file__).parents[1]
NAME = "libneurenix.so.1"
CARRIED = Path(neurenix.__file__).parent / "_lib"


def built() -> Path:
    """The newest library: of `just capi`, of the package, or of Rust's tests. Skips where there is none."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    places = [CARRIED / NAME, *(target / profile / "libneurenix.so" for profile in ("release", "debug"))]
    for place in sorted((p for p in places if p.is_file()), key=lambda p: p.stat().st_mtime, reverse=True):
        # With Python's bindings it is the extension module.
        if b"nrx_context_run" in place.read_bytes():
            return place
    pytest.skip("there is no library of the C API: `just capi` or `just test-rust` builds it")


def package(folder: Path) -> Path:
    """The Python package's folders of headers, libraries and CMake, with the library that was built last."""
    found = built()
    shutil.copytree(ROOT / "cpp/include", folder / "_include")
    shutil.copytree(ROOT / "python/neurenix/cmake", folder / "cmake")
    (folder / "_lib").mkdir()
    for other in CARRIED.glob("lib*.so.*"):
        shutil.copy(other, folder / "_lib")
    shutil.copy(found, folder / "_lib" / NAME)
    return folder
