"""The arrays that a plugin works on: views of an engine's memory, valid while the call lasts."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from neurenix import _native
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.plugins.describe import Shaped

#: DLPack's numbers of devices.
_CPU: Final = 1
_CUDA: Final = 2


class HostArray(np.ndarray[Any, Any]):
    """A numpy array that goes out through DLPack in every dtype that DLPack has, bfloat16 too."""

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule that shares the memory."""
        if not self.flags.c_contiguous:
            return super().__dlpack__(**options)
        return _native.dlpack(self, self.ctypes.data, self.dtype, list(self.shape), (_CPU, 0))

    def __dlpack_device__(self) -> tuple[Literal[1], Literal[0]]:
        """The processor."""
        return (_CPU, 0)


class DeviceArray:
    """An array on a GPU: `torch.from_dlpack(x)`, `cupy.asarray(x)` or `x.ptr` reach it without a copy.

    Work on it goes into the stream that `execute` is given; nobody waits for it.
    """

    def __init__(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...], ordinal: int) -> None:
        self.ptr = address
        self.dtype = dtype
        self.shape = shape
        self.device = ordinal

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address, as torch calls it."""
        return self.ptr

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Types that numpy lacks are bytes here, as CuPy has them; DLPack knows them.
        plain = self.dtype.kind in "biuf" and self.dtype.isbuiltin == 1
        return {
            "shape": self.shape,
            "typestr": self.dtype.str if plain else f"|V{self.dtype.itemsize}",
            "data": (self.ptr, False),
            "strides": None,
            "version": 3,
        }

    def __array__(self, *args: Any, **options: Any) -> Any:
        """Raises `InvalidArgumentError`: numpy can't read it."""
        raise InvalidArgumentError(
            "numpy can't read an array on a GPU",
            hint='use torch.from_dlpack(array), or let the plugin say devices = ("cpu",): its data are brought there',
        )

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule that shares the memory."""
        return _native.dlpack(self, self.ptr, self.dtype, list(self.shape), (_CUDA, self.device))

    def __dlpack_device__(self) -> tuple[int, int]:
        """The GPU."""
        return (_CUDA, self.device)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on GPU {self.device})"


def _host(address: int, dtype: np.dtype[Any], shape: Sequence[int], writable: bool) -> HostArray:
    count = math.prod(shape) * dtype.itemsize
    if count == 0:
        return np.empty(shape, dtype).view(HostArray)
    memory = (ctypes.c_char * count).from_address(address)
    array: HostArray = np.ndarray.__new__(HostArray, tuple(shape), dtype, memoryview(memory))
    array.flags.writeable = writable
    return array


class Views:
    """Arrays of fixed dtypes and shapes on a device, made anew when their addresses change."""

    def __init__(self, ordinal: int | None, tensors: Sequence[Shaped], writable: bool) -> None:
        self._ordinal = ordinal
        self._tensors = [(np.dtype(dtype), tuple(shape)) for dtype, shape in tensors]
        self._writable = writable
        self._addresses: tuple[int, ...] = ()
        self._made: list[Any] = []

    def at(self, addresses: tuple[int, ...]) -> list[Any]:
        """The arrays at these addresses; the list is the caller's."""
        if addresses != self._addresses or len(self._made) != len(self._tensors):
            pairs = zip(addresses, self._tensors, strict=True)
            self._made = [self._one(address, dtype, shape) for address, (dtype, shape) in pairs]
            self._addresses = addresses
        return list(self._made)

    def _one(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        if self._ordinal is None:
            return _host(address, dtype, shape, self._writable)
        return DeviceArray(address, dtype, shape, self._ordinal)
