"""The arrays that a plugin works on: views of an engine's memory, valid while the call lasts."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from neurenix import _native
from neurenix.errors import InvalidArgumentError, PluginError
from neurenix.hardware.tensorrt.plugins.describe import Shaped

#: DLPack's numbers of devices.
_CPU: Final = 1
_CUDA: Final = 2


class HostArray(np.ndarray[Any, Any]):
    """A numpy array that goes out through DLPack in every dtype that DLPack has, bfloat16 too."""

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
        """A capsule that shares the memory, but for what can't be written: torch's tensors can, so they get a copy.

        `copy=False` shares that too; whoever asks for it must not write.
        """
        shared = self if copy is False or (self.flags.writeable and not copy) else self.copy()
        if not shared.flags.c_contiguous:
            return super().__dlpack__(copy=copy, **options)
        return _native.dlpack(shared, shared.ctypes.data, shared.dtype, list(shared.shape), (_CPU, 0))

    def __dlpack_device__(self) -> tuple[Literal[1], Literal[0]]:
        """The processor."""
        return (_CPU, 0)


class DeviceArray:
    """An array on a GPU: `torch.from_dlpack(x)`, `cupy.asarray(x)` or `x.ptr` reach it without a copy.

    Work on it goes into the stream that `execute` is given; nobody waits for it. After the call there is no way to it.
    """

    def __init__(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...], ordinal: int) -> None:
        self._address: int | None = address
        self.dtype = dtype
        self.shape = shape
        self.device = ordinal

    @property
    def ptr(self) -> int:
        """The address; raises `InvalidArgumentError` after the call."""
        if self._address is None:
            raise InvalidArgumentError("the call that this array belongs to has ended", hint="keep a copy of it")
        return self._address

    def cut_off(self) -> None:
        """Ends the array with its call."""
        self._address = None

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


class _Memory:
    """Bytes at an address. It exports no buffer, so that numpy lets nobody make a view writable that is not."""

    def __init__(self, address: int, size: int, writable: bool) -> None:
        self.__array_interface__ = {
            "data": (address, not writable),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


class _Bytes(np.ndarray[Any, Any]):
    """What lies under a `HostArray`.

    A view of an array holds the lowest array of its own type under it. No view has this type, so that all of them hold
    the `HostArray`, and its references tell whether there are any.
    """


def _host(address: int, dtype: np.dtype[Any], shape: Sequence[int], writable: bool) -> HostArray:
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype).view(HostArray)
    under = np.asarray(_Memory(address, size, writable)).view(_Bytes)
    array: HostArray = np.ndarray.__new__(HostArray, tuple(shape), dtype, under)
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

    def kept(self) -> list[int]:
        """The numbers of those arrays that somebody else holds, or a view of which."""
        return [number for number in range(len(self._made)) if _references(self._made, number) > _OWN]

    def cut_off(self, numbers: Sequence[int]) -> None:
        """Parts arrays from the engine's memory: one on the processor has a copy of its elements from now on."""
        for number in numbers:
            array = self._made[number]
            if isinstance(array, DeviceArray):
                array.cut_off()
            else:
                array.__setstate__((1, array.shape, array.dtype, False, array.tobytes()))
        if numbers:
            self._addresses, self._made = (), []

    def _one(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        if self._ordinal is None:
            return _host(address, dtype, shape, self._writable)
        return DeviceArray(address, dtype, shape, self._ordinal)


def _references(made: list[Any], number: int) -> int:
    return sys.getrefcount(made[number])


#: The references of an array that nobody but its `Views` holds.
_OWN: Final = _references([object()], 0)


class Loan:
    """A `with` around one call of a user's code, which ends the arrays that it was given.

    Raises `PluginError` where the code returned, and still holds one. What it raised itself goes on as it is: its
    traceback holds arrays too.
    """

    def __init__(self, method: str, **views: Views) -> None:
        self._method = method
        self._views = views

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if not self._kept():
            return
        # A cycle that nobody reaches any more holds arrays until it is found.
        if kind is None:
            gc.collect()
        kept = self._kept()
        for name, numbers in kept.items():
            self._views[name].cut_off(numbers)
        if kept and kind is None:
            names = [f"{name}[{number}]" for name, numbers in kept.items() for number in numbers]
            raise PluginError(
                f"{self._method} keeps arrays beyond its call",
                got=", ".join(names),
                hint=f"keep a copy ({names[0]}.copy()), and views of it",
            )

    def _kept(self) -> dict[str, list[int]]:
        return {name: numbers for name, views in self._views.items() if (numbers := views.kept())}
