"""The C API's library, and a program in C that uses it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from neurenix.hardware import get_backend
from neurenix.shapes import Shape
from tests import native
from tests.capi import models

SOURCE = Path(__file__).parent / "probe.c"


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Headers, the library with those that it needs, and the package for CMake."""
    return native.package(tmp_path_factory.mktemp("capi") / "neurenix")


@pytest.fixture(scope="session")
def compile_probe(package: Path) -> Callable[[str, list[str]], Path]:
    """Compiles `probe.c` with a compiler and its flags; gives the program."""

    def compiled(compiler: str, flags: list[str]) -> Path:
        program = package / f"probe-{'-'.join(flags[-1:]).strip('-=+')}"
        strict = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{package / '_include'}"]
        link = [f"-L{package / '_lib'}", f"-l:{native.NAME}", f"-Wl,-rpath,{package / '_lib'}", "-lpthread"]
        command = [compiler, *strict, *flags, str(SOURCE), "-o", str(program), *link]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
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
