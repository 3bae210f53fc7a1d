"""Reads safetensors files: mapped, checked before anything is allocated."""

from __future__ import annotations

import json
import os
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from neurenix import files
from neurenix.errors import FileError, FormatError

#: A header longer than this is an attack, not a model.
LONGEST_HEADER = 100 << 20

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


def load(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file by name; they read from the mapped file.

    Raises `FileError` when it can't be read and `FormatError` for what is damaged or no safetensors file.
    """
    files.check(path, "the file")
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise FileError(f"the file can't be read: {error}", got=os.fspath(path)) from error
    try:
        return _arrays(data)
    except FormatError as error:
        error.got = f"{os.fspath(path)}" + (f": {error.got}" if error.got else "")
        raise


def _arrays(data: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    length = int.from_bytes(data[:8].tobytes(), "little")
    if data.size < 8 or length > min(LONGEST_HEADER, data.size - 8):
        raise FormatError("the header of a safetensors file is missing or too long", got=f"{length} bytes")
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise FormatError("the header of a safetensors file can't be read", got=str(error)) from error
    if not isinstance(header, dict):
        raise FormatError("the header of a safetensors file is no object")
    body = data[8 + length :]
    return {name: _array(body, name, entry) for name, entry in header.items() if name != "__metadata__"}


def _array(body: NDArray[np.uint8], name: str, entry: Any) -> NDArray[Any]:
    try:
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        sane = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError("an entry of a safetensors file can't be read", tensor=name, got=repr(entry)) from error
    count = 1
    for extent in shape if sane else ():
        count *= extent
    if not sane or end > body.size or end - begin != count * dtype.itemsize:
        raise FormatError("an entry of a safetensors file does not fit the file", tensor=name, got=repr(entry))
    return body[begin:end].view(dtype).reshape(shape)
