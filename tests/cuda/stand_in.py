"""A recorded H200: stand-ins for NVIDIA's libraries, out of `recorded/`, and processes that see them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsIndex, TypeVar

from neurenix import _native
from neurenix.hardware.options import Options

SOURCES = Path(__file__).parent / "recorded"
#: The library that each source becomes; libcuda comes first, since the others link to it.
LIBRARIES = {
    "libcuda.so.1": ("cuda.c", "state.c", "streams.c"),
    "libnvrtc.so.13": ("nvrtc.c",),
    "libcublasLt.so.13": ("cublaslt.c",),
    "libcudnn.so.9": ("cudnn.c",),
}
FLAGS = "-std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -pthread".split()

#: CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ILLEGAL_ADDRESS.
OUT_OF_MEMORY, ILLEGAL_ADDRESS = 2, 700

Result = TypeVar("Result")

#: What the processes below leave out.
warm_up = _native.warm_up


def build(folder: Path, lacks: str | None = None) -> Path:
    """Compiles the libraries into a folder, without the function that they lack."""
    folder.mkdir()
    for library, sources in LIBRARIES.items():
        state = [] if library == "libcuda.so.1" else [f"-L{folder}", "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"]
        rename = [f"-D{lacks}={lacks}_that_came_later"] if lacks else []
        files = [str(SOURCES / source) for source in sources]
        command = ["cc", *FLAGS, *rename, f"-Wl,-soname,{library}", *files, "-o", str(folder / library), *state]
        subprocess.run(command, check=True)
    return folder


def copied(libraries: Path, folder: Path, missing: str | None = None) -> Path:
    """Brings the libraries into another folder, all but the `missing` one: to compile them takes seconds."""
    shutil.copytree(libraries, folder)
    if missing is not None:
        (folder / missing).unlink()
    return folder


class Recorded:
    """The recorded device of this process, as the stand-ins tell of it."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(Path(os.environ["NEURENIX_CUDA_LIBRARIES"]) / "libcuda.so.1"))
        library.recorded_count.restype = ctypes.c_long
        library.recorded_text.restype = ctypes.c_char_p
        self._library = library

    def count(self, name: str) -> int:
        """How often a function was called, or a gauge; `recorded.h` lists them."""
        return int(self._library.recorded_count(name.encode()))

    def set(self, name: str, value: int) -> None:
        """Sets a property of the device."""
        self._library.recorded_set(name.encode(), ctypes.c_long(value))

    def fail(self, function: str, after: int, status: int) -> None:
        """Lets a function give a status, once, after so many more calls."""
        self._library.recorded_fail(function.encode(), ctypes.c_long(after), status)

    def lines(self, heading: str) -> list[str]:
        """What was written down under a heading."""
        text: bytes = self._library.recorded_text(heading.encode())
        return text.decode().splitlines()

    def forget(self, heading: str) -> None:
        """Forgets what was written down under a heading."""
        self._library.recorded_forget(heading.encode())


def _stay_cold(names: Sequence[str], device: SupportsIndex) -> None:
    """What libraries are asked beside a build comes in no order, and may be what a test lets fail."""


def _unverified(native: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Options without a comparison of numbers, unless a test asks for one: kernels do not run here."""

    def given(self: Options, *args: Any) -> dict[str, Any]:
        return native(self, *args) | ({"verify": False} if self.verify == "auto" else {})

    return given


def _set(environment: dict[str, str], packages: Sequence[str]) -> None:
    os.environ.update(environment)
    Options.native = _unverified(Options.native)  # type: ignore[method-assign]
    # Those of the machine are nothing to tests.
    _native.look_in(list(packages))
    _native.warm_up = _stay_cold


class Process:
    """A process that finds the stand-ins of a folder, and packages in folders; `settings` are more of its environment.

    What it runs must be a function at the top of a module that can be imported; its errors are raised here.
    """

    def __init__(self, folder: Path, packages: Sequence[str] = (), **settings: str) -> None:
        environment = {
            "NEURENIX_CUDA_LIBRARIES": str(folder),
            "NEURENIX_PROVIDERS": "",
            # Every plan of these tests is proven to be free of hazards.
            "NEURENIX_VERIFY": "1",
        } | settings
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, initializer=_set, initargs=(environment, packages))

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def run(self, job: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """What a function gives there."""
        return self._pool.submit(job, *args, **kwargs).result()
