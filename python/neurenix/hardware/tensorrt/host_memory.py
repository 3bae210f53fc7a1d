"""The processor's memory where Polygraphy expects a GPU's."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
from collections.abc import Iterator
from typing import Any

from neurenix.errors import OutOfMemoryError


class HostMemory:
    """What Polygraphy's `Cuda` does, on the processor's memory: blocks, copies, and streams that are always done."""

    def __init__(self) -> None:
        self._blocks: dict[int, Any] = {}
        self._streams = itertools.count(1)

    def create_stream(self) -> int:
        """A stream: a number."""
        return next(self._streams)

    def stream_synchronize(self, ptr: int | None) -> None:
        """Returns at once: everything is done."""

    def destroy_stream(self, ptr: int | None) -> None:
        """Forgets a stream, of which nothing is kept."""

    def malloc(self, nbytes: int) -> int:
        """The address of a new block. Raises `OutOfMemoryError` where there is no room."""
        try:
            block = (ctypes.c_ubyte * max(1, int(nbytes)))()
        except (MemoryError, OverflowError) as error:
            raise OutOfMemoryError("there is no memory for an array", got=f"{nbytes} bytes") from error
        address = ctypes.addressof(block)
        self._blocks[address] = block
        return address

    def free(self, ptr: int | None) -> None:
        """Gives a block back."""
        self._blocks.pop(ptr or 0, None)

    def memcpy(self, dst: int, src: int, nbytes: int, kind: Any, stream_ptr: int | None = None) -> None:
        """Copies bytes."""
        if nbytes:
            ctypes.memmove(dst, src, int(nbytes))


@contextlib.contextmanager
def under_polygraphy() -> Iterator[None]:
    """While it lasts, Polygraphy's device arrays and streams are the processor's; nothing where it is not installed."""
    try:
        wrapper: Any = importlib.import_module("polygraphy.cuda.cuda")
    except ImportError:
        yield
        return
    before = wrapper.G_CUDA
    wrapper.G_CUDA = HostMemory()
    try:
        yield
    finally:
        wrapper.G_CUDA = before
