"""The C API's library, and a program in C that uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import neurenix
from neurenix.hardware import get_backend
from neurenix.shapes import Shape
from tests.capi import models

ROOT = Path(__file__).parents[2]
NAME = "libneurenix.so.1"


def built() -> Path:
    """The newest library that is there: of `just capi`, of the package, or of Rust's tests."""
    carried = Path(neurenix.__file__).parent / "_lib" / NAME
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    places = [carried, *(target / profile / "libneurenix.so" for profile in ("release", "debug"))]
    for place in sorted((p for p in places if p.is_file()), key=lambda p: p.stat().st_mtime, reverse=True):
        # With Python's bindings it is the extension module.
        if b"nrx_context_run" in place.read_bytes():
            return place
    pytest.skip("there is no library of the C API: `just capi` or `just test-rust` builds it")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, in a folder with those that it needs and nothing else."""
    folder = tmp_path_factory.mktemp("capi")
    for other in (Path(neurenix.__file__).parent / "_lib").glob("lib*.so.*"):
        shutil.copy(other, folder)
    shutil.copy(built(), folder / NAME)
    return folder / NAME


@pytest.fixture(scope="session")
def compile_probe(library: Path) -> Callable[[str, list[str]], Path]:
    """Compiles `probe.c` with a compiler and its flags; gives the program."""

    def compiled(compiler: str, flags: list[str]) -> Path:
        program = library.parent / f"probe-{'-'.join(flags[-1:]).strip('-=+')}"
        strict = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'cpp/include'}"]
        source = [*flags, str(ROOT / "tests/capi/probe.c"), "-o", str(program)]
        link = [f"-L{library.parent}", f"-l:{NAME}", f"-Wl,-rpath,{library.parent}", "-lpthread"]
        done = subprocess.run([compiler, *strict, *source, *link], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return program

    return compiled


@pytest.fixture(scope="session")
def probe(compile_probe: Callable[[str, list[str]], Path]) -> Path:
    """The program, as C99."""
    return compile_probe(os.environ.get("CC", "cc"), ["-std=c99"])


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine file of a perceptron for 1 to 16 rows."""
    path = tmp_path_factory.mktemp("engines") / "toy.engine"
    shape = Shape(min=(1, 16), opt=(8, 16), max=(16, 16))
    get_backend("cpu").optimize_model(models.perceptron(), {"x": shape}).save(path)
    return path
