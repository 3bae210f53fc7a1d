"""Reads the tensors of a model: inside of the file, or in files beside it, whatever field they stand in."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from neurenix.errors import Error, FileError, FormatError, UnsupportedError
from neurenix.importers.onnx.node import Array

if TYPE_CHECKING:
    import onnx

#: ONNX's element types in numpy's words.
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
}
#: Of these, those of which several share a byte in a file, and their bits.
PACKED = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
#: The field that holds the elements of each type where they are not raw bytes.
FIELDS: dict[int, str] = {
    **dict.fromkeys((2, 3, 4, 5, 6, 9, 10, *range(16, 27)), "int32_data"),
    1: "float_data",
    7: "int64_data",
    11: "double_data",
    12: "uint64_data",
    13: "uint64_data",
}
#: The types that stand in int32_data as the bits of their elements.
BITS: dict[int, Any] = {10: np.uint16, 16: np.uint16, **dict.fromkeys((17, 18, 19, 20, 24), np.uint8)}
#: A sparse tensor that would take more bytes than this when its zeros are written out is refused.
LARGEST_SPARSE = 1 << 31
#: `data_location` of a tensor that lies in a file of its own.
EXTERNAL = 1


def dtype_of(number: int) -> np.dtype[Any]:
    """numpy's dtype for a number of `onnx.TensorProto.DataType`."""
    if number in DTYPES:
        return DTYPES[number]
    import onnx

    name = onnx.TensorProto.DataType.Name(number) if number in onnx.TensorProto.DataType.values() else str(number)
    if number == onnx.TensorProto.STRING:
        raise no_strings()
    raise UnsupportedError(
        f"the element type {name} is not supported", expected=", ".join(str(d) for d in DTYPES.values())
    )


def no_strings(tensor: str | None = None) -> UnsupportedError:
    """The refusal of texts."""
    return UnsupportedError(
        "tensors of strings are not supported",
        tensor=tensor,
        expected="a model of numbers",
        hint="turn strings into numbers in front of the model, as a tokenizer or a table does, and cut off what works "
        "on strings (onnx.utils.extract_model)",
    )


class Weights:
    """The tensors of one model, and the files beside it that hold some of them."""

    def __init__(
        self, folder: Path | None, follow_links: bool = False, apart: Mapping[str, Array] | None = None
    ) -> None:
        #: Where the model lies; None for one that came as bytes.
        self.folder = folder
        #: Whether links may lead out of the folder.
        self.follow_links = follow_links
        #: The bytes of weights of the model's own file that were read apart, by what they call their location.
        self.apart = apart or {}
        self._files: dict[Path, mmap.mmap | bytes] = {}

    def read(self, proto: onnx.TensorProto) -> Array:
        """The elements of a tensor. What lies in another file is mapped, not copied.

        Raises `FormatError`, `FileError` or `UnsupportedError` with the name of the tensor.
        """
        with _naming(proto.name):
            return self._read(proto)

    def _read(self, proto: onnx.TensorProto) -> Array:
        shape = _shape(proto.dims)
        if proto.data_type not in DTYPES:
            dtype_of(proto.data_type)
        if proto.HasField("segment"):
            raise UnsupportedError("a tensor in segments is not supported", hint="write it in one piece")
        raw = self._external(proto) if proto.data_location == EXTERNAL else proto.raw_data
        fields = [field for field in {*FIELDS.values(), "string_data"} if len(getattr(proto, field))]
        if fields and (raw or fields != [FIELDS.get(proto.data_type)]):
            raise FormatError(
                "the elements of a tensor stand in the wrong field, or in two",
                expected=f"raw_data or {FIELDS.get(proto.data_type, 'a field of its type')}",
                got=", ".join([*(["raw_data"] if raw else []), *sorted(fields)]),
            )
        if proto.data_type in PACKED:
            return _packed(proto, raw, shape)
        dtype = dtype_of(proto.data_type)
        elements = _typed(proto, dtype) if fields else _from_raw(raw, dtype)
        return _shaped(elements, shape, dtype.name)

    def read_sparse(self, proto: onnx.SparseTensorProto) -> Array:
        """A sparse tensor with its zeros written out.

        Raises as `read`, and `UnsupportedError` if that takes more than `LARGEST_SPARSE` bytes.
        """
        with _naming(proto.values.name):
            return self._read_sparse(proto)

    def _read_sparse(self, proto: onnx.SparseTensorProto) -> Array:
        shape = _shape(proto.dims)
        values, indices = self.read(proto.values), self.read(proto.indices)
        size, count = math.prod(shape), values.size
        if values.dtype.itemsize * size > LARGEST_SPARSE:
            raise UnsupportedError(
                "a sparse tensor is too large to write its zeros out",
                expected=f"at most {LARGEST_SPARSE} bytes",
                got=f"{values.dtype}{list(shape)}",
            )
        if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in ((count,), (count, len(shape))):
            raise FormatError(
                "the places of a sparse tensor do not fit its values",
                expected=f"int64[{count}] or int64[{count}, {len(shape)}]",
                got=f"{indices.dtype}{list(indices.shape)} for {values.dtype}{list(values.shape)}",
            )
        extents = (size,) if indices.ndim == 1 else shape
        if np.any(indices < 0) or np.any(indices.reshape(count, -1) >= np.array(extents, np.int64)):
            raise FormatError("a place of a sparse tensor is outside of it", expected=f"places in {list(extents)}")
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
        if np.unique(flat).size != count:
            raise FormatError("a sparse tensor gives one element twice")
        dense = np.zeros(size, values.dtype)
        dense[flat] = values
        return dense.reshape(shape)

    def _external(self, proto: onnx.TensorProto) -> memoryview:
        """The bytes of a tensor that lies in a file of its own."""
        entries: dict[str, str] = {entry.key: entry.value for entry in proto.external_data}
        if entries.get("location") in self.apart:
            return self.apart[entries["location"]].data
        if self.folder is None:
            raise FileError(
                "the weights of the model lie in another file",
                hint="give the path of the model, or load it with onnx.load, which reads them too",
            )
        location = entries.get("location", "")
        file = self._mapped(self.folder, location)
        offset = _number(entries, "offset", 0)
        length = _number(entries, "length", max(0, len(file) - offset))
        if offset + length > len(file):
            raise FileError(
                "the weights of the model can't be read: they lie beyond the end of their file",
                expected=f"at most {len(file)} bytes in {location!r}",
                got=f"offset {offset}, length {length}",
                hint="the file is cut short, or of another model: copy it again",
            )
        return memoryview(file)[offset : offset + length]

    def _mapped(self, folder: Path, location: str) -> mmap.mmap | bytes:
        path = _inside(folder, location, self.follow_links)
        if path not in self._files:
            try:
                self._files[path] = _map(path)
            except OSError as error:
                raise FileError(
                    f"the weights of the model can't be read: {error.strerror}",
                    got=str(path),
                    hint="put the file beside the model",
                ) from error
        return self._files[path]


@contextlib.contextmanager
def _naming(tensor: str) -> Iterator[None]:
    """Puts the name of a tensor into errors that have none."""
    try:
        yield
    except Error as error:
        error.tensor = error.tensor or tensor
        raise


def _inside(folder: Path, location: str, follow_links: bool) -> Path:
    """Where a file beside the model lies; a model may name no other file."""
    windows = PureWindowsPath(location)
    # A path of either system is refused on both: what a model may read must not depend on where it is opened.
    parts = {*windows.parts, *PurePosixPath(location).parts}
    if not location or "\0" in location or windows.drive or windows.root or ".." in parts:
        raise _outside(location, "copy the file beside the model")
    root = folder.resolve()
    path = (root / location).resolve()
    if not follow_links and not path.is_relative_to(root):
        raise _outside(
            location,
            "copy the file beside the model, or import the model with from_onnx(..., follow_links=True) if whoever "
            "made the links is trusted: a Hugging Face cache keeps its files behind such",
        )
    return path


def _outside(location: str, hint: str) -> FileError:
    return FileError(
        "the weights of the model can't be read: they may lie only in the model's folder",
        expected="a path relative to the model, without '..' and without links out of its folder",
        got=repr(location),
        hint=hint,
    )


def _map(path: Path) -> mmap.mmap | bytes:
    # Not blocking: opening a pipe would wait for its other end.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "it is no plain file")
        return mmap.mmap(handle, 0, access=mmap.ACCESS_READ) if status.st_size else b""
    finally:
        os.close(handle)


def _number(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    # As many digits as 2^63 has.
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise FormatError(f"the {key} of external data is no number", expected="0 or more, in digits", got=repr(text))
    return int(text)


def _shape(dims: Any) -> tuple[int, ...]:
    shape = tuple(dims)
    if any(dim < 0 for dim in shape):
        raise FormatError("a dimension of a constant is negative", got=str(list(shape)))
    return shape


def _from_raw(raw: bytes | memoryview, dtype: np.dtype[Any]) -> Array:
    if len(raw) % dtype.itemsize:
        raise FormatError(
            "a constant has another number of bytes than its shape says",
            expected=f"elements of {dtype.itemsize} bytes",
            got=f"{len(raw)} bytes",
        )
    if dtype == np.bool_:
        return _truths(np.frombuffer(raw, np.uint8))
    return np.frombuffer(raw, dtype)


def _truths(numbers: Array) -> Array:
    """A number may be anything; a truth is 0 or 1."""
    return np.asarray(numbers != 0)


def _typed(proto: onnx.TensorProto, dtype: np.dtype[Any]) -> Array:
    """The elements of a field of numbers."""
    numbers = np.array(getattr(proto, FIELDS[proto.data_type]))
    if proto.data_type == 9:
        return _truths(numbers)
    width = np.dtype(BITS.get(proto.data_type, dtype))
    if width.kind not in "iu":
        return numbers.astype(dtype)
    limits = np.iinfo(width)
    if numbers.size and (numbers.min() < limits.min or numbers.max() > limits.max):
        raise FormatError(f"an element does not fit {dtype}", got=f"{numbers.min()} to {numbers.max()}")
    return numbers.astype(width).view(dtype)


def _packed(proto: onnx.TensorProto, raw: bytes | memoryview, shape: tuple[int, ...]) -> Array:
    """Elements of 2 or 4 bits, as onnx reads them."""
    import onnx
    from onnx.numpy_helper import to_array

    expected = -(-math.prod(shape) * PACKED[proto.data_type] // 8)
    if (len(raw) or len(proto.int32_data)) != expected:
        raise _wrong_count(list(shape), f"{len(raw) or len(proto.int32_data)} bytes")
    if proto.data_location == EXTERNAL:
        proto = onnx.TensorProto(data_type=proto.data_type, dims=shape, raw_data=bytes(raw), name=proto.name)
    return np.asarray(to_array(proto)).astype(DTYPES[proto.data_type], copy=False)


def _shaped(elements: Array, shape: tuple[int, ...], dtype: str) -> Array:
    if elements.size != math.prod(shape):
        raise _wrong_count(list(shape), f"{elements.nbytes} bytes", dtype)
    try:
        return elements.reshape(shape)
    except (ValueError, OverflowError) as error:
        # numpy's own limits: the number of dimensions, and their product beside a zero.
        raise UnsupportedError(f"a constant can't have this shape: {error}", got=str(list(shape))) from error


def _wrong_count(shape: list[int], got: str, dtype: str = "") -> FormatError:
    return FormatError(
        "a constant has another number of bytes than its shape says", expected=f"{dtype}{shape}", got=got
    )
