"""Element types, shapes and what all words of TensorRT's API have in common."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import Any, cast

import ml_dtypes
import numpy as np

from neurenix.errors import DTypeError

Truth = bool


class Word(enum.Enum):
    """A word of TensorRT's API: `int()` gives TensorRT's number, `str()` "DataType.FLOAT".

    A member is written as its number, with the name of one of our ops or attributes behind it where there is one
    (`op`). Words of a kind have an order.
    """

    op: str

    def __new__(cls, number: int, op: str = "") -> Word:
        """A member."""
        member = object.__new__(cls)
        member._value_ = number
        member.op = op
        return member

    def __int__(self) -> int:
        return cast(int, self._value_)

    __index__ = __int__

    def __rlshift__(self, one: int) -> int:
        return one << int(self)

    def __lt__(self, other: Any) -> Truth:
        return int(self) < int(other)

    def __le__(self, other: Any) -> Truth:
        return int(self) <= int(other)

    def __gt__(self, other: Any) -> Truth:
        return int(self) > int(other)

    def __ge__(self, other: Any) -> Truth:
        return int(self) >= int(other)


class DataType(enum.Enum):
    """Element types; `dtype` is numpy's."""

    FLOAT = (0, np.float32)
    HALF = (1, np.float16)
    INT8 = (2, np.int8)
    INT32 = (3, np.int32)
    BOOL = (4, np.bool_)
    UINT8 = (5, np.uint8)
    FP8 = (6, ml_dtypes.float8_e4m3fn)
    BF16 = (7, ml_dtypes.bfloat16)
    INT64 = (8, np.int64)
    INT4 = (9, ml_dtypes.int4)
    FP4 = (10, ml_dtypes.float4_e2m1fn)
    E8M0 = (11, ml_dtypes.float8_e8m0fnu)

    dtype: np.dtype[Any]

    def __new__(cls, number: int, scalar: type) -> DataType:
        """A member."""
        member = object.__new__(cls)
        member._value_ = number
        member.dtype = np.dtype(scalar)
        return member

    def __int__(self) -> int:
        return cast(int, self._value_)

    __index__ = __int__

    @property
    def itemsize(self) -> int:
        """Bytes of one element in an array."""
        return int(self.dtype.itemsize)


float32 = DataType.FLOAT
float16 = DataType.HALF
bfloat16 = DataType.BF16
int8 = DataType.INT8
uint8 = DataType.UINT8
int32 = DataType.INT32
int64 = DataType.INT64
bool = DataType.BOOL
fp8 = DataType.FP8
e8m0 = DataType.E8M0
fp4 = DataType.FP4
int4 = DataType.INT4


def nptype(trt_type: DataType) -> type[Any]:
    """numpy's scalar type (or that of ml_dtypes) for an element type, as `numpy.float32`.

    Raises `DTypeError` (a TypeError) for what is no element type.
    """
    if not isinstance(trt_type, DataType):
        raise DTypeError("this is no element type", expected=", ".join(d.name for d in DataType), got=repr(trt_type))
    return trt_type.dtype.type


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """numpy's dtype for an element type of TensorRT's or numpy's.

    Raises `DTypeError` for anything else.
    """
    if isinstance(dtype, DataType):
        return dtype.dtype
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except TypeError as error:
        expected = ", ".join(d.name for d in DataType)
        raise DTypeError("this is no dtype", expected=expected, got=repr(dtype)) from error


def as_data_type(dtype: np.dtype[Any]) -> DataType | np.dtype[Any]:
    """TensorRT's element type; numpy's for one that TensorRT does not have."""
    return next((d for d in DataType if d.dtype == dtype), dtype)


def volume(iterable: Iterable[int]) -> int:
    """The number of elements of a shape."""
    return math.prod(iterable)


class Dims(tuple[int, ...]):
    """A shape; -1 where a dimension is dynamic."""

    #: TensorRT's most dimensions; networks here may have more.
    MAX_DIMS = 8

    def __new__(cls, shape: Iterable[Any] = ()) -> Dims:
        return super().__new__(cls, (d if isinstance(d, int) else -1 for d in shape))

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self)

    def get_type(self, index: int) -> int:
        """TensorRT before 10 told kinds of dimensions apart; there is one here."""
        return 0


def _of_rank(name: str, rank: int) -> type[Dims]:
    def make(cls: type[Dims], *dims: Any) -> Dims:
        given = tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims
        if len(given) != rank:
            raise ValueError(f"{cls.__name__} has {rank} dimensions, not {len(given)}")
        return tuple.__new__(cls, given)

    return type(name, (Dims,), {"__new__": make, "__doc__": f"A shape of {rank} dimensions."})


Dims2 = _of_rank("Dims2", 2)
Dims3 = _of_rank("Dims3", 3)
Dims4 = _of_rank("Dims4", 4)


class DimsHW(Dims2):  # type: ignore[valid-type, misc]
    """A height and a width."""

    @property
    def h(self) -> int:
        """The height."""
        return int(self[0])

    @property
    def w(self) -> int:
        """The width."""
        return int(self[1])


class Permutation(tuple[int, ...]):
    """The order that a transpose brings dimensions into; tuples and lists do as well."""

    def __new__(cls, order: Iterable[int] = ()) -> Permutation:
        return super().__new__(cls, (int(axis) for axis in order))
