"""Arrays and streams on the recorded device, as a caller has them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


class Arrays:
    """Arrays and streams on the recorded device."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL(str(Path(os.environ["NEURENIX_CUDA_LIBRARIES"]) / "libcuda.so.1"))
        context = ctypes.c_void_p()
        assert self.driver.cuInit(0) == 0
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self.driver.cuCtxPushCurrent_v2(context) == 0
        self._memory: list[ctypes.c_void_p] = []
        self._streams: list[ctypes.c_void_p] = []

    def array(self, size: int) -> tuple[int, int]:
        """The address and the GPU of some bytes."""
        address = ctypes.c_void_p()
        assert self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
        self._memory.append(address)
        return address.value or 0, 0

    def free_last(self) -> None:
        """Gives the last array back."""
        assert self.driver.cuMemFree_v2(self._memory.pop()) == 0

    def stream(self) -> tuple[int, int]:
        """A GPU and a stream there."""
        stream = ctypes.c_void_p()
        assert self.driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
        self._streams.append(stream)
        return 0, stream.value or 0

    def close(self) -> None:
        """Gives all of it back."""
        for stream in self._streams:
            assert self.driver.cuStreamSynchronize(stream) == 0 == self.driver.cuStreamDestroy_v2(stream)
        for address in self._memory:
            assert self.driver.cuMemFree_v2(address) == 0
        assert self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0
