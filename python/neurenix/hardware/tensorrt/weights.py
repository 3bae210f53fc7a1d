"""Weights as scripts of TensorRT give them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix import arrays
from neurenix.addresses import is_readable
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.enums import DataType, as_data_type, as_dtype

#: Element types of which TensorRT has two in a byte, where an array has one in each.
_HALVES = ("int4", "float4_e2m1fn")


class Weights:
    """An array of weights: `Weights(array)`, `Weights(dtype)` for none, `Weights(dtype, pointer, count)`.

    A pointer is the address of `count` elements in the processor's memory, which must stay as they are while the
    Weights are in use. Elements of 4 bits lie there two to a byte, the first one in the lower half; they are copied.
    """

    def __init__(self, a: Any = np.float32, ptr: int | None = None, count: int | None = None) -> None:
        if ptr is not None or count is not None:
            self.array = _at(ptr, count or 0, as_dtype(a))
        elif isinstance(a, (DataType, type)):
            self.array = np.empty(0, as_dtype(a))
        else:
            self.array = a if isinstance(a, np.ndarray) else arrays.to_numpy(a)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The array."""
        return self.array

    @property
    def dtype(self) -> DataType | np.dtype[Any]:
        """The element type."""
        return as_data_type(self.array.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.array.size)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, as TensorRT holds them."""
        return (self.size + 1) // 2 if self.array.dtype.name in _HALVES else int(self.array.nbytes)

    def __len__(self) -> int:
        return self.size


def _at(address: int | None, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if not count:
        return np.empty(0, dtype)
    if not address:
        raise InvalidArgumentError("the weights have elements and no address", got=f"count {count}, pointer {address}")
    nbytes = (count + 1) // 2 if dtype.name in _HALVES else count * dtype.itemsize
    if not is_readable(address, address + nbytes):
        raise InvalidArgumentError(
            "the weights are at an address that the processor can't read",
            expected=f"{count} elements of {dtype} in the processor's memory, which nobody has freed",
            got=f"{nbytes} bytes from {address:#x} on",
        )
    if dtype.name not in _HALVES:
        return memory_at(address, (count,), dtype)
    pairs = memory_at(address, ((count + 1) // 2,), np.dtype(np.uint8))
    return np.stack([pairs & 0xF, pairs >> 4], axis=-1).ravel()[:count].view(dtype)


def memory_at(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array on memory of the processor that somebody else owns."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size == 0:
        return np.empty(tuple(shape), dtype)
    raw: np.ndarray[Any, Any] = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))
    return raw.view(dtype).reshape(tuple(shape))


def weights(value: Any, shape: Sequence[int] | None, dtype: np.dtype[Any], what: str) -> np.ndarray[Any, Any] | None:
    """An array of this shape and dtype from what a user gives for weights; an empty one is none.

    Raises `InvalidArgumentError` when the number of elements differs.
    """
    if value is None:
        return None
    array = value.array if isinstance(value, Weights) else arrays.to_numpy(value)
    if array.size == 0 and (shape is None or 0 not in shape):
        return None
    array = arrays.floating(array, dtype, what) if dtype.kind in "fV" else array
    if shape is None:
        return np.ascontiguousarray(array)
    if array.size != int(np.prod(shape)):
        raise InvalidArgumentError(
            f"{what} has another number of elements than the layer needs",
            expected=str(list(shape)),
            got=str(list(array.shape)),
        )
    return np.ascontiguousarray(array).reshape(tuple(shape))
