"""Runtime: opens serialised engines."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from neurenix import _native
from neurenix.errors import Error, FileError, InvalidArgumentError, UnsupportedError
from neurenix.hardware.options import check
from neurenix.hardware.tensorrt.engine import ICudaEngine
from neurenix.hardware.tensorrt.interfaces import IErrorRecorder, IStreamReader, IStreamReaderV2
from neurenix.hardware.tensorrt.logger import Logger, Severity, checked, report
from neurenix.hardware.tensorrt.plugins import IPluginRegistry, get_plugin_registry
from neurenix.hardware.tensorrt.scoped import Scoped

#: A reader is asked for so many bytes at a time.
CHUNK = 1 << 24


class Runtime(Scoped):
    """Opens serialised engines. What was timed on another device or with another library is planned anew."""

    num_DLA_cores = 0
    DLA_core = -1
    _REFUSED: ClassVar = {
        "DLA_core": "there is no DLA",
        "gpu_allocator": "memory comes from the provider that runs a layer",
    }

    logger: Any
    error_recorder: IErrorRecorder | None
    #: Engines hold no code, whatever is allowed.
    engine_host_code_allowed: bool
    temporary_directory: str | None

    def __init__(self, logger: Any = None) -> None:
        self.logger = checked(logger)
        self._threads: int | None = None
        self.error_recorder = None
        self.engine_host_code_allowed = False
        self.temporary_directory = None

    @property
    def max_threads(self) -> int:
        """Threads of a CPU that engines run on."""
        return self._threads or _native.default_threads()

    @max_threads.setter
    def max_threads(self, threads: int) -> None:
        self._threads = check("threads", threads)

    def deserialize_cuda_engine(self, serialized_engine: Any) -> ICudaEngine | None:
        """Opens an engine from bytes, or from an IStreamReader; nothing in them is executed.

        None, after logging the error, where they are damaged, newer, or no engine: `trt.last_error()` has it.
        """
        try:
            return self._open(_bytes(serialized_engine))
        except Error as error:
            report(self.logger, error, self.error_recorder)
            return None

    def _open(self, data: bytes) -> ICudaEngine:
        from neurenix.hardware import get_backend

        options = {} if self._threads is None else {"threads": self._threads}
        with _kept(data, self.temporary_directory) as path:
            model = get_backend().load(path, **options)
        engine = model._engine
        if type(self.logger) is not Logger:
            for note in engine.notes:
                self.logger.log(Severity.WARNING, note)
        return ICudaEngine(engine, model._options, self.logger)

    def load_runtime(self, path: str) -> Runtime:
        """Refused with `UnsupportedError`: engines need no runtime of another version."""
        raise UnsupportedError("there is no runtime to load: engine files open across versions", got=str(path))

    def get_plugin_registry(self) -> IPluginRegistry:
        """The registry of plugins."""
        return get_plugin_registry()


@contextlib.contextmanager
def _kept(data: bytes, folder: str | None) -> Iterator[Path]:
    """A file of these bytes, for as long as it is opened: what is mapped stays, and nobody else has its name."""
    try:
        own = tempfile.TemporaryDirectory(prefix="neurenix-", dir=folder)
    except OSError as error:
        raise _no_room(error, folder) from error
    with own as name:
        path = Path(name) / "engine"
        try:
            path.write_bytes(data)
        except OSError as error:
            raise _no_room(error, name) from error
        yield path


def _no_room(error: OSError, folder: str | None) -> FileError:
    return FileError(
        f"the engine can't be put into a file to be mapped: {error.strerror}",
        got=folder or tempfile.gettempdir(),
        hint="set runtime.temporary_directory to a folder with room, or open the file: TensorRTBackend().load(path)",
    )


def _bytes(given: Any) -> bytes:
    if isinstance(given, bytes):
        return given
    if isinstance(given, (IStreamReader, IStreamReaderV2)):
        read = given.read if isinstance(given, IStreamReader) else (lambda size: given.read(size, 0))
        return b"".join(iter(lambda: bytes(read(CHUNK)), b""))
    try:
        return bytes(memoryview(given))
    except TypeError as error:
        raise InvalidArgumentError(
            "an engine is opened from bytes", expected="bytes, or what has a buffer", got=type(given).__name__
        ) from error
