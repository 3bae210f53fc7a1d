"""Arrays of any framework, to numpy and back to the kind that came in."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from neurenix.errors import DTypeError

Array = NDArray[Any]


def to_numpy(value: Any) -> Array:
    """The same elements as numpy (bfloat16 as ml_dtypes has it), without a copy where the memory is the CPU's."""
    if is_torch(value):
        torch = sys.modules["torch"]
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            return np.asarray(value.contiguous().view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
        return np.asarray(value.numpy())
    return np.asarray(value)


def is_torch(value: Any) -> bool:
    """Whether this is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def like(array: Array, kind: Any) -> Any:
    """`array` as the framework of `kind` has arrays, sharing its memory; numpy where `kind` is of no array library."""
    if isinstance(kind, np.ndarray):
        return array
    if is_torch(kind):
        torch = sys.modules["torch"]
        if array.dtype == ml_dtypes.bfloat16:
            tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array)
        return tensor if kind.device.type == "cpu" else tensor.to(kind.device)
    namespace = getattr(kind, "__array_namespace__", None)
    if namespace is None:
        return array
    library = namespace()
    return library.from_dlpack(array) if hasattr(library, "from_dlpack") else array


def floating(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """`array` as a weight of this dtype: floating-point types convert, others must agree."""
    if array.dtype == dtype:
        return array
    floats = (array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16) and dtype.kind in "fV"
    if not floats:
        raise DTypeError("a weight has another dtype", tensor=name, expected=str(dtype), got=str(array.dtype))
    return array.astype(dtype)
