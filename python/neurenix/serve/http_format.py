"""Requests and responses for inference as HTTP carries them: JSON, and bytes behind it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from neurenix.serve import parameters
from neurenix.serve.served import Served
from neurenix.serve.spec import (
    Array,
    Request,
    Spec,
    TensorSpec,
    complete,
    from_bytes,
    shown,
    tensor_of,
    wanted_outputs,
)
from neurenix.serve.status import Refused, Status

#: The header that says how many bytes of a body are JSON.
LENGTH_HEADER = b"inference-header-content-length"


def _invalid(message: str, **parts: Any) -> Refused:
    return Refused(Status.INVALID, message, **parts)


class _Literal(float):
    """NaN or infinity by name, which JSON has not and many clients write: no number that was too large."""


def json_object(body: bytes | memoryview) -> dict[str, Any]:
    """The JSON object of a body; raises `Refused` for anything else."""
    try:
        found = json.loads(bytes(body), parse_constant=_Literal)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the body can't be read as JSON: {error}", expected="a JSON object in UTF-8") from None
    if not isinstance(found, dict):
        raise _invalid("the body is no JSON object", expected="{...}", got=type(found).__name__)
    return found


def _entries(content: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects with names."""
    found = content.get(name, [])
    if not isinstance(found, list) or not all(isinstance(e, dict) and isinstance(e.get("name"), str) for e in found):
        raise _invalid(f"{name!r} is no list of tensors", expected=f'"{name}": [{{"name": "...", ...}}]')
    names = [entry["name"] for entry in found]
    if len(set(names)) != len(names):
        raise _invalid(f"{name!r} has one name twice", got=", ".join(names)[:200])
    return found


def _parameters(entry: Mapping[str, Any]) -> dict[str, Any]:
    found = entry.get("parameters", {})
    if not isinstance(found, dict):
        raise _invalid("'parameters' is no JSON object", expected="{...}", got=type(found).__name__)
    parameters.check(found)
    return found


def decode(served: Served, body: bytes, header: str | None) -> Request:
    """The request of a body, whose first `header` bytes are JSON; raises `Refused` for what does not fit the model."""
    spec = served.spec
    split = len(body) if header is None else _split(header, len(body))
    content = json_object(body[:split] if split != len(body) else body)
    given = _parameters(content)
    rest = memoryview(body)[split:]
    arrays: dict[str, Array] = {}
    for entry in _entries(content, "inputs"):
        arrays[entry["name"]], rest = _input(spec, entry, rest)
    if len(rest):
        raise _invalid("the body is longer than its inputs", got=f"{len(rest)} bytes behind the last of them")
    asked = _entries(content, "outputs")
    names = wanted_outputs(spec, [entry["name"] for entry in asked])
    all_binary = given.get("binary_data_output", False) is True
    chosen = {entry["name"]: _parameters(entry).get("binary_data", all_binary) is True for entry in asked}
    identifier = content.get("id", "")
    return Request(
        identifier if isinstance(identifier, str) else str(identifier)[:200],
        arrays,
        complete(spec, arrays),
        names,
        parameters.priority(given),
        parameters.deadline(given, served.default_timeout_us),
        frozenset(name for name in names if chosen.get(name, all_binary)),
    )


def _split(header: str, length: int) -> int:
    if not (header.isascii() and header.isdecimal()) or len(header) > 12 or not 0 < int(header) <= length:
        raise _invalid(
            "Inference-Header-Content-Length is out of range", expected=f"1 to {length}, the length of the body",
            got=repr(header[:40]),
        )  # fmt: skip
    return int(header)


def _input(spec: Spec, entry: Mapping[str, Any], rest: memoryview) -> tuple[Array, memoryview]:
    """An input, and what is left of the bytes."""
    name, shape = entry["name"], entry.get("shape")
    if not isinstance(shape, list):
        raise _invalid(f"input {shown(name)} has no shape", expected='"shape": [...]')
    tensor = tensor_of(spec, name, str(entry.get("datatype")), shape)
    size = _parameters(entry).get("binary_data_size")
    if size is None:
        return _from_json(tensor, shape, entry.get("data")), rest
    if type(size) is not int or not 0 <= size <= len(rest):
        raise _invalid(
            f"input {name!r} has a binary_data_size out of range", expected=f"0 to {len(rest)}", got=repr(size)[:40]
        )
    if "data" in entry:
        raise _invalid(f"input {name!r} has its data twice", expected='"data" or "binary_data_size"')
    return settled(from_bytes(tensor, shape, rest[:size])), rest[size:]


def settled(array: Array) -> Array:
    """The array where it can be read element by element, with truth values that are 0 or 1."""
    if array.dtype.kind == "b":
        truth: Array = array.view(np.uint8) != 0
        return truth
    return array if array.flags.aligned else array.copy()


#: The kinds of numpy's dtypes that JSON's numbers may be for a tensor of each kind.
_TAKEN = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "V": "iuf"}


def _from_json(tensor: TensorSpec, shape: list[int], data: Any) -> Array:
    """An array of nested lists, or of one flat list."""
    if not isinstance(data, list):
        raise _invalid(f"input {tensor.name!r} has no data", expected='"data": [...], or "binary_data_size"')
    try:
        found = _read(tensor, data)
    except (ValueError, OverflowError, RecursionError) as error:
        raise _invalid(f"the data of input {tensor.name!r} is no array: {error}") from None
    count = math.prod(shape)
    if found.size != count or (found.ndim > 1 and list(found.shape) != shape):
        raise _invalid(
            f"the data of input {tensor.name!r} has the wrong shape", expected=f"{shape}, nested or flat",
            got=str(list(found.shape)),
        )  # fmt: skip
    if count and found.dtype.kind not in _TAKEN[tensor.dtype.kind]:
        raise _invalid(f"the data of input {tensor.name!r} has elements that are no {tensor.datatype}")
    _check_elements(tensor, data, found)
    return from_bytes(tensor, shape, _cast(tensor, found).tobytes())


def _read(tensor: TensorSpec, data: list[Any]) -> Array:
    """The elements as numpy takes them; integers that int64 has no room for keep their digits for a tensor of integers,
    and are floats for one of floats.
    """
    found = np.asarray(data)
    wide = "fO" if tensor.dtype.kind in "iu" else "O"
    if tensor.dtype.kind not in _TAKEN or tensor.dtype.kind == "b" or found.dtype.kind not in wide:
        return found
    exact = np.asarray(data, object)
    kinds = set(map(type, exact.flat))
    try:
        if kinds == {int}:
            whole = np.uint64 if min(exact.flat) >= 0 else np.int64
            return exact.astype(whole if tensor.dtype.kind in "iu" else np.float64)
        return exact.astype(np.float64) if kinds == {int, float} and tensor.dtype.kind not in "iu" else found
    except OverflowError:
        raise _out_of_range(tensor) from None


def _check_elements(tensor: TensorSpec, data: list[Any], found: Array) -> None:
    """Refuses what numpy takes for numbers of the tensor's: truth values among others, and what is beyond doubles."""
    elements = data
    for _ in range(found.ndim - 1):
        elements = list(chain.from_iterable(elements))
    if tensor.dtype.kind != "b" and bool in set(map(type, elements)):
        raise _invalid(
            f"the data of input {tensor.name!r} has elements that are no {tensor.datatype}",
            expected="numbers", got="true or false",
        )  # fmt: skip
    if found.dtype.kind == "f" and any(type(elements[i]) is float for i in np.flatnonzero(np.isinf(found))):
        raise _out_of_range(tensor)


def _out_of_range(tensor: TensorSpec) -> Refused:
    return _invalid(f"the data of input {tensor.name!r} has elements out of the range of {tensor.datatype}")


def _cast(tensor: TensorSpec, found: Array) -> Array:
    with np.errstate(over="ignore"):
        cast = found.astype(tensor.dtype)
    if tensor.dtype.kind in "iu":
        fits = bool(np.all(cast == found))
    else:
        fits = bool(np.all(np.isfinite(cast.astype(np.float64)) == np.isfinite(found)))
    if not fits:
        raise _out_of_range(tensor)
    return cast


def encode(served: Served, request: Request, outputs: Mapping[str, Array]) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of a response; raises `Refused` for numbers that JSON has not, where JSON is asked for."""
    tail: list[bytes] = []
    described = []
    for tensor in served.spec.outputs:
        if tensor.name not in request.outputs:
            continue
        array = outputs[tensor.name]
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(array.shape)}
        if tensor.name in request.binary:
            tail.append(array.tobytes())
            entry["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            plain = array.astype(np.float32) if tensor.datatype in ("FP16", "BF16") else array
            entry["data"] = plain.ravel().tolist()
        described.append(entry)
    content: dict[str, Any] = {"model_name": served.name, "model_version": str(served.version), "outputs": described}
    if request.id:
        content["id"] = request.id
    try:
        head = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise Refused(
            Status.UNSUPPORTED, "an output has NaN or infinity, which JSON has not",
            hint='ask for bytes: "parameters": {"binary_data_output": true}',
        ) from None  # fmt: skip
    if not tail:
        return [(b"content-type", b"application/json")], head
    length = str(len(head)).encode()
    return [(b"content-type", b"application/octet-stream"), (LENGTH_HEADER, length)], b"".join([head, *tail])
