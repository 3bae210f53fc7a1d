"""The fields of plugins: typed values by name, as users give them and as an engine file keeps them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from neurenix import arrays
from neurenix.errors import InvalidArgumentError

#: A field as the native module has it: the name of its kind, its shape, its bytes.
Value = tuple[str, tuple[int, ...], bytes]
#: The name of the one field of a plugin that makes bytes of itself.
SERIALIZED = "(serialized)"


class PluginFieldType(enum.Enum):
    """Types of fields, with TensorRT's numbers."""

    FLOAT16 = 0
    FLOAT32 = 1
    FLOAT64 = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    CHAR = 6
    DIMS = 7
    UNKNOWN = 8
    BF16 = 9
    INT64 = 10
    FP8 = 11
    INT4 = 12
    FP4 = 13


_DTYPES: dict[PluginFieldType, np.dtype[Any]] = {
    PluginFieldType.FLOAT16: np.dtype(np.float16),
    PluginFieldType.FLOAT32: np.dtype(np.float32),
    PluginFieldType.FLOAT64: np.dtype(np.float64),
    PluginFieldType.INT8: np.dtype(np.int8),
    PluginFieldType.INT16: np.dtype(np.int16),
    PluginFieldType.INT32: np.dtype(np.int32),
    PluginFieldType.BF16: np.dtype(ml_dtypes.bfloat16),
    PluginFieldType.INT64: np.dtype(np.int64),
    PluginFieldType.FP8: np.dtype(ml_dtypes.float8_e4m3fn),
    PluginFieldType.INT4: np.dtype(ml_dtypes.int4),
    PluginFieldType.FP4: np.dtype(ml_dtypes.float4_e2m1fn),
    PluginFieldType.DIMS: np.dtype(np.int64),
}
#: What becomes of numbers whose type nobody says: what TensorRT's ONNX parser makes of them.
_USUAL = {"i": PluginFieldType.INT32, "u": PluginFieldType.INT32, "b": PluginFieldType.INT32}


class PluginField:
    """A typed value with a name. `data` is an array, or bytes of type CHAR."""

    def __init__(
        self, name: str | bytes = "", data: Any = None, type: PluginFieldType = PluginFieldType.UNKNOWN
    ) -> None:
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        self.type = type
        self.data = data

    @property
    def size(self) -> int:
        """How many elements it has."""
        return len(self.data) if isinstance(self.data, (str, bytes)) else int(np.size(self.data))

    def __repr__(self) -> str:
        return f"PluginField({self.name!r}, {self.data!r}, {self.type.name})"


class PluginFieldCollection(list[PluginField]):
    """Fields, in order."""

    def __init__(self, fields: Iterable[PluginField] = ()) -> None:
        super().__init__(fields)


def pack(name: str, value: Any) -> Value:
    """A field out of a number, a truth value, a text, bytes, or a list or an array of numbers.

    Raises `InvalidArgumentError` for anything else.
    """
    if isinstance(value, PluginField):
        return _pack_typed(value)
    if isinstance(value, str):
        data = value.encode()
        return "text", (len(data),), data
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes", (len(bytes(value)),), bytes(value)
    try:
        if isinstance(value, (list, tuple)) and len(value) == 0:
            array = np.empty(0, np.int64)
        elif arrays.is_torch(value):
            array = arrays.to_numpy(value)
        else:
            array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_field(name, value) from error
    return _pack_array(name, array, value)


def _pack_typed(field: PluginField) -> Value:
    if field.type is PluginFieldType.CHAR:
        data = field.data.encode() if isinstance(field.data, str) else bytes(np.asarray(field.data).tobytes())
        if isinstance(field.data, (bytes, bytearray)):
            data = bytes(field.data)
        return "bytes", (len(data),), data
    dtype = _DTYPES.get(field.type)
    array = np.asarray(field.data if field.data is not None else [], dtype)
    kind, shape, data = _pack_array(field.name, array, field.data)
    return ("dims" if field.type is PluginFieldType.DIMS else kind), shape, data


def _pack_array(name: str, array: np.ndarray[Any, Any], value: Any) -> Value:
    known = array.dtype.kind in "biuf" or hasattr(ml_dtypes, array.dtype.name)
    if not known or array.dtype.itemsize > 8:
        raise _no_field(name, value)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return array.dtype.name, tuple(array.shape), array.tobytes()


def _no_field(name: str, value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"field {name!r} of a plugin has a value that no file can keep",
        expected="a number, a truth value, a text, bytes, or a list or an array of numbers",
        got=type(value).__name__,
        hint="leave it out, give it in another form, or define `serialize` and `deserialize`",
    )


def pack_all(values: Mapping[str, Any]) -> dict[str, Value]:
    """Fields out of values by name."""
    return {name: pack(name, value) for name, value in values.items()}


def array_of(value: Value) -> np.ndarray[Any, Any]:
    """The elements of a field."""
    kind, shape, data = value
    name = {"dims": "int64", "text": "uint8", "bytes": "uint8"}.get(kind, kind)
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    array: np.ndarray[Any, Any] = np.frombuffer(data, dtype).reshape(shape).copy()
    return array


def unpack(value: Value) -> Any:
    """A field as a plain value: a list where a row of ints, floats or truth values came, an array for other shapes."""
    kind, shape, data = value
    if kind == "text":
        return data.decode()
    if kind == "bytes":
        return data
    array = array_of(value)
    plain = kind in ("int64", "float64", "bool", "dims")
    if plain and len(shape) <= 1:
        return array.tolist()
    return array[()] if shape == () else array


def collection(values: Mapping[str, Value], declared: Iterable[PluginField]) -> PluginFieldCollection:
    """Fields as TensorRT's creators get them: of the types that they declare, else of those of TensorRT's parser."""
    types = {field.name: field.type for field in declared}
    return PluginFieldCollection(_typed(name, value, types.get(name)) for name, value in values.items())


def _typed(name: str, value: Value, declared: PluginFieldType | None) -> PluginField:
    kind, _, data = value
    if kind in ("text", "bytes"):
        return PluginField(name, data, PluginFieldType.CHAR)
    array = np.atleast_1d(array_of(value))
    if declared in (None, PluginFieldType.UNKNOWN, PluginFieldType.CHAR):
        exact = {dtype: type for type, dtype in _DTYPES.items() if type is not PluginFieldType.DIMS}
        fallback = _USUAL.get(array.dtype.kind, PluginFieldType.FLOAT32)
        wide = array.dtype in (np.dtype(np.int64), np.dtype(np.float64))
        declared = fallback if wide else exact.get(array.dtype, fallback)
    assert declared is not None
    return PluginField(name, array.astype(_DTYPES[declared]), declared)
