"""The dtype in which two operands are computed, as PyTorch has it: truths give way to integers, those to floats."""

from __future__ import annotations

from typing import Any

import numpy as np

DType = np.dtype[Any]

#: The dtypes of numbers that meet a tensor of a lesser kind: truths, integers, floats.
_DEFAULTS = (np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.float32))
_HALVES = {"float16", "bfloat16"}


def kind(dtype: DType) -> int:
    """0 for truths, 1 for integers, 2 for floats."""
    if dtype.kind == "b":
        return 0
    # Those of ml_dtypes have numpy's kind of no number.
    return 1 if dtype.kind in "iu" or dtype.name.startswith(("int", "uint")) else 2


def beside_number(dtype: DType, number: Any) -> DType:
    """Of a tensor and a number, which counts where it is of a higher kind alone."""
    given = kind(np.asarray(number).dtype)
    return dtype if given <= kind(dtype) else _DEFAULTS[given]


def of_tensors(a: DType, a_rank: int, b: DType, b_rank: int) -> DType:
    """Of two tensors: the higher kind; within one kind, that of the tensor that has dimensions, or the wider one."""
    if a == b:
        return a
    if kind(a) != kind(b):
        return a if kind(a) > kind(b) else b
    if (a_rank == 0) != (b_rank == 0):
        return b if a_rank == 0 else a
    # Neither of them holds the other.
    return np.dtype(np.float32) if {a.name, b.name} == _HALVES else np.promote_types(a, b)
