"""ITimingCache: measured times of kernels, as a script keeps them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from types import TracebackType

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.memory import IHostMemory
from neurenix.hardware.tensorrt.strict import Strict

#: A time: its checksum, nanoseconds, and what was timed (the kernel, the device, the libraries).
_LINE = re.compile(rb"[0-9a-f]{16}\t[0-9]+\t[^\t]")


class ITimingCache(Strict):
    """Times that builds measured: each names its device and its libraries, so that caches of several machines mix.

    `config.create_timing_cache(b"")` makes one; a build after `config.set_timing_cache(cache, False)` fills it.
    """

    def __init__(self, serialized: bytes = b"") -> None:
        self._lines = dict.fromkeys(_lines(serialized))

    def serialize(self) -> IHostMemory:
        """The times as bytes."""
        return IHostMemory(b"".join(line + b"\n" for line in self._lines))

    def combine(self, input_cache: ITimingCache, ignore_mismatch: bool = False) -> bool:
        """Adds the times of another cache; times of other machines never mismatch, as they say where they are from."""
        if not isinstance(input_cache, ITimingCache):
            raise InvalidArgumentError("a timing cache is expected", got=type(input_cache).__name__)
        self._lines.update(input_cache._lines)
        return True

    def reset(self) -> bool:
        """Forgets all times."""
        self._lines.clear()
        return True

    def __len__(self) -> int:
        return len(self._lines)

    def __bool__(self) -> bool:
        return True


class _Lent:
    """A cache as the file that a build reads and appends to."""

    def __init__(self, cache: ITimingCache) -> None:
        self._cache = cache

    def __enter__(self) -> str:
        self._folder = tempfile.TemporaryDirectory(prefix="neurenix-")
        self._path = Path(self._folder.name) / "timing.cache"
        self._path.write_bytes(self._cache.serialize())
        return str(self._path)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was measured is kept even where the build failed."""
        self._cache._lines.update(dict.fromkeys(_lines(self._path.read_bytes())))
        self._folder.cleanup()


def lent(cache: ITimingCache) -> _Lent:
    """A file that stands for a cache during a build; it then has what was measured too."""
    return _Lent(cache)


def _lines(serialized: bytes) -> list[bytes]:
    return [line for line in bytes(serialized).split(b"\n") if _LINE.match(line)]
