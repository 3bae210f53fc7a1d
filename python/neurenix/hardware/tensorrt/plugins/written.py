"""Whether a plugin writes its outputs, which its first call at a shape tells."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

import numpy as np

from neurenix.errors import PluginError
from neurenix.hardware.tensorrt.plugins.describe import Shaped

#: Bytes that outputs are filled with before a call. What equals one of them after a call may have been written so; what
#: equals the other one after a second call was not.
PATTERNS = (0xA5, 0x5A)


class Watch:
    """Runs a plugin on outputs in the processor's memory, and refuses one that leaves an output as it was."""

    def __init__(self, ordinal: int | None, outputs: Sequence[Shaped]) -> None:
        self._sizes = [math.prod(shape) * np.dtype(dtype).itemsize for dtype, shape in outputs]
        #: Whether nothing is left to be found out. The memory of a GPU is not looked at.
        self.over = ordinal is not None

    def run(self, call: Callable[[], None], addresses: Sequence[int], method: str, way: str) -> None:
        """Makes the first call; `way` says how `method` gives its outputs.

        Raises `PluginError` for an output that it leaves as it was.
        """
        left = {number for number, size in enumerate(self._sizes) if size}
        for pattern in PATTERNS:
            for address, size in zip(addresses, self._sizes, strict=True):
                ctypes.memset(address, pattern, size)
            call()
            left = {number for number in left if _is_full(addresses[number], self._sizes[number], pattern)}
            if not left:
                self.over = True
                return
        raise PluginError(f"{method} wrote nothing to output {min(left)} of {len(self._sizes)}", hint=way)


def _is_full(address: int, size: int, pattern: int) -> bool:
    """Whether all bytes are the pattern."""
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    return bool((memory == pattern).all())
