"""What inference does with arrays of numpy, torch and the array API alike."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from neurenix import arrays
from neurenix.errors import DTypeError, InvalidArgumentError

#: The dtypes that are converted into each other on the way into a model.
FLOATS = ("float16", "bfloat16", "float32", "float64")


def is_array(value: Any) -> bool:
    """Whether this is an array of some library."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_on_gpu(value: Any) -> bool:
    """Whether the elements lie on a GPU, where work is queued and nobody waits for it."""
    if arrays.is_torch(value):
        return bool(value.device.type != "cpu")
    return hasattr(value, "__cuda_array_interface__")


def is_count(value: Any, least: int = 1) -> bool:
    """Whether this is an integer of some library, not below `least`."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def dtype_name(value: Any) -> str:
    """The name of an array's dtype, as numpy and ml_dtypes have it."""
    return str(getattr(value.dtype, "name", value.dtype)).removeprefix("torch.")


def as_dtype(value: Any, dtype: np.dtype[Any], name: str) -> Any:
    """The array in the dtype of an input: floats become the floats that it takes, integers wider ones.

    Raises `DTypeError` for everything else: what the numbers of an image mean is for `preprocess=` to say.
    """
    given = dtype_name(value)
    if given == dtype.name:
        return value
    both_float = given in FLOATS and dtype.name in FLOATS
    if not both_float and not (
        _is_integer(given) and _is_integer(dtype.name) and np.can_cast(_numpy(given), dtype, "safe")
    ):
        raise DTypeError(
            "the array has the wrong dtype",
            tensor=name,
            expected=dtype.name,
            got=given,
            hint='say what its numbers mean: preprocess=lambda x: x.astype("float32") / 255, or preprocess=dict('
            'dtype="u8", ...), which does it in the network'
            if dtype.name in FLOATS
            else f"convert it to {dtype.name} first",
        )
    if arrays.is_torch(value):
        return value.to(getattr(sys.modules["torch"], dtype.name))
    return value.astype(dtype)


def _is_integer(name: str) -> bool:
    return name.startswith(("int", "uint"))


def _numpy(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def concatenate(parts: Sequence[Any]) -> Any:
    """Arrays of one library, one behind the other along the first axis."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if arrays.is_torch(first):
        return sys.modules["torch"].cat(list(parts))
    return _namespace(first).concat(list(parts))


def add_axis(value: Any) -> Any:
    """The array as the only row of a batch."""
    return value[None]


def zeros(shape: Sequence[int], like: Any, dtype: str) -> Any:
    """Zeros, of numpy or, beside a torch tensor, of torch on its device."""
    if arrays.is_torch(like):
        torch = sys.modules["torch"]
        return torch.zeros(tuple(shape), dtype=getattr(torch, dtype), device=like.device)
    return np.zeros(tuple(shape), dtype)


def _namespace(value: Any) -> Any:
    namespace = getattr(value, "__array_namespace__", None)
    if namespace is None:
        raise InvalidArgumentError(
            "this is no array that can be put into a batch",
            expected="arrays of numpy, torch, or of a library with the array API",
            got=type(value).__name__,
        )
    return namespace()
