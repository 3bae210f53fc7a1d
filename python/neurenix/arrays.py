"""Arrays of any framework, to numpy and back to the kind that came in."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from neurenix.errors import DTypeError, InvalidArgumentError

Array = NDArray[Any]
#: The dtypes that torch and ml_dtypes have, but numpy does not; both call them so.
SHARED = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


def to_numpy(value: Any) -> Array:
    """The same elements as numpy (bfloat16 and narrower as ml_dtypes), without a copy where memory is the CPU's.

    Raises `InvalidArgumentError` for a torch tensor without elements.
    """
    if is_torch(value):
        torch = sys.modules["torch"]
        value = settled(value).detach().cpu()
        name = str(value.dtype).removeprefix("torch.")
        if name in SHARED:
            bits = torch.int16 if value.element_size() == 2 else torch.int8
            return np.asarray(value.contiguous().view(bits).numpy()).view(getattr(ml_dtypes, name))
        return np.asarray(value.numpy())
    return np.asarray(value)


def is_torch(value: Any) -> bool:
    """Whether this is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def settled(tensor: Any) -> Any:
    """A torch tensor whose memory has its elements as they are: conjugation and signs that torch left open are done.

    Raises `InvalidArgumentError` for a tensor without elements.
    """
    if tensor.is_meta:
        raise InvalidArgumentError(
            "the tensor has no elements: it lies on torch's meta device",
            expected="a tensor in memory",
            got="device meta",
            hint='make it on a device, for example with torch.zeros_like(x, device="cpu")',
        )
    if tensor.is_conj() or tensor.is_neg():
        return tensor.resolve_conj().resolve_neg()
    return tensor


def like(array: Array, kind: Any) -> Any:
    """`array` as the framework of `kind` has arrays, sharing its memory; numpy where `kind` is of no array library."""
    if isinstance(kind, np.ndarray):
        return array
    if is_torch(kind):
        torch = sys.modules["torch"]
        name = array.dtype.name
        if name in SHARED:
            tensor = torch.from_numpy(array.view(f"i{array.itemsize}")).view(getattr(torch, name))
        elif hasattr(ml_dtypes, name):
            raise DTypeError(f"torch has no {name}", hint="give numpy arrays, or cast this output in the model")
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
    if not (_is_float(array.dtype) and _is_float(dtype)):
        raise DTypeError("a weight has another dtype", tensor=name, expected=str(dtype), got=str(array.dtype))
    return array.astype(dtype)


def _is_float(dtype: np.dtype[Any]) -> bool:
    """Whether numbers are computed with in a floating-point dtype; those of 8 bits are only stored."""
    return dtype == ml_dtypes.bfloat16 or (dtype.kind == "f" and dtype.itemsize > 1)
