"""Files that are read whole or written whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from neurenix import _native
from neurenix.errors import FileError

Path = str | os.PathLike[str]


def check(path: Path, what: str) -> None:
    """Refuses what is no file: a pipe would wait for a writer, and a device may never end.

    Raises `FileError`, which calls it `what`.
    """
    os.close(_open(path, what))


def read(path: Path, what: str) -> bytes:
    """The bytes of a file; raises as `check`."""
    with opened(path, what) as file:
        return file.read()


@contextmanager
def opened(path: Path, what: str) -> Iterator[IO[bytes]]:
    """A file to be read; raises as `check`, also for what the block can't read of it."""
    try:
        with os.fdopen(_open(path, what), "rb") as file:
            yield file
    except FileError:
        raise
    except OSError as error:
        raise _unread(path, what, error.strerror) from error


def _open(path: Path, what: str) -> int:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unread(path, what, error.strerror) from error
    except ValueError as error:
        raise _unread(path, what, str(error)) from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    raise _unread(path, what, "it is a folder" if stat.S_ISDIR(mode) else "it is a device or a pipe")


def _unread(path: Path, what: str, reason: str | None) -> FileError:
    # A zero byte would end the message wherever C prints it.
    return FileError(f"{what} can't be read: {reason}", got=os.fspath(path).replace("\0", "\\0"))


@contextmanager
def replacing(path: Path, what: str) -> Iterator[IO[bytes]]:
    """A file to be written that takes the place of the one at `path` when the block ends, and is gone if it fails.

    It has the rights of the file that was there; a link stays, and what it points to is replaced. A device or a pipe is
    written to as it is.

    Raises `FileError`, which calls it `what`, when it can't be written.
    """
    try:
        target = os.path.realpath(path)
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as file:
                yield file
            return
        replacement = _native.Replacement(target)
        try:
            with open(replacement.temporary, "wb") as file:
                yield file
            replacement.commit()
        finally:
            replacement.discard()
    except FileError as error:
        # Without the number that Rust adds, as Python words the same.
        raise _unwritten(path, what, error.message.partition(" (os error ")[0]) from error
    except OSError as error:
        raise _unwritten(path, what, error.strerror) from error
    except ValueError as error:
        if "\0" not in os.fspath(path):
            raise
        raise _unwritten(path, what, str(error)) from error


def _unwritten(path: Path, what: str, reason: str | None) -> FileError:
    return FileError(f"{what} can't be written: {reason}", got=os.fspath(path).replace("\0", "\\0"))


def write(path: Path, text: str, what: str) -> None:
    """Writes a text file; raises and replaces as `replacing`."""
    with replacing(path, what) as file:
        file.write(text.encode())
