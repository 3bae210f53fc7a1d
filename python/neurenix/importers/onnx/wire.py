"""Reads an ONNX file with its large weights apart: protobuf would hold each of them twice before it is an array."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

import numpy as np

from neurenix import files
from neurenix.importers.onnx.node import Array

#: Weights of fewer bytes are left to protobuf.
LEAST = 1 << 16
#: Numbers of fields, as onnx.proto has them.
MODEL_GRAPH, GRAPH_INITIALIZER, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 7, 5, 9, 13, 14
#: How a value is written: a varint, 8 bytes, bytes behind their length, 4 bytes.
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5


class _Odd(Exception):
    """The bytes are not what protobuf writes: its own parser says what is wrong."""


class _Field(NamedTuple):
    number: int
    wire: int
    #: Where its tag, its value and what is behind it start.
    start: int
    value: int
    end: int


def read(path: str | os.PathLike[str]) -> tuple[bytes, dict[str, Array]]:
    """The bytes of a model whose large weights are called external, and the bytes of these by their location.

    The locations are random, so that no model can name them itself. Raises `FileError` if the file can't be read.
    """
    with files.opened(path, "the model") as file:
        apart: dict[str, Array] = {}
        size = file.seek(0, os.SEEK_END)
        prefix = secrets.token_hex(16)

        def tensor(at: _Field) -> bytes | None:
            return _tensor(file, at, apart, prefix)

        def graph(at: _Field) -> bytes | None:
            return _replaced(file, at.value, at.end, GRAPH_INITIALIZER, tensor)

        try:
            return _replaced(file, 0, size, MODEL_GRAPH, graph), apart
        except _Odd:
            file.seek(0)
            return file.read(), {}


def _replaced(file: IO[bytes], start: int, end: int, number: int, change: Callable[[_Field], bytes | None]) -> bytes:
    """The bytes of a message in which the values of one field are replaced by what `change` gives."""
    parts, copied = [], start
    for field in _fields(file, start, end):
        value = change(field) if field.number == number and field.wire == BYTES else None
        if value is not None:
            parts += [_bytes(file, copied, field.start), _written(number, value)]
            copied = field.end
    return b"".join([*parts, _bytes(file, copied, end)])


def _tensor(file: IO[bytes], at: _Field, apart: dict[str, Array], prefix: str) -> bytes | None:
    """A tensor without its elements, which go into `apart`; None for one that stays as it is."""
    if at.end - at.value < LEAST:
        return None
    fields = list(_fields(file, at.value, at.end))
    raw = [field for field in fields if field.number == RAW_DATA]
    named = any(field.number in (EXTERNAL_DATA, DATA_LOCATION) for field in fields)
    if named or len(raw) != 1 or raw[0].wire != BYTES or raw[0].end - raw[0].value < LEAST:
        return None
    location = f"{prefix}/{len(apart)}"
    file.seek(raw[0].value)
    elements = np.empty(raw[0].end - raw[0].value, np.uint8)
    if file.readinto(elements) != elements.size:  # type: ignore[attr-defined]
        raise _Odd
    apart[location] = elements
    entry = _written(1, b"location") + _written(2, location.encode())
    rest = _bytes(file, at.value, raw[0].start) + _bytes(file, raw[0].end, at.end)
    return rest + _written(EXTERNAL_DATA, entry) + bytes([DATA_LOCATION << 3 | VARINT, 1])


def _fields(file: IO[bytes], start: int, end: int) -> Iterator[_Field]:
    """The fields of a message, whose values are not read."""
    at = start
    while at < end:
        tag, value = _varint(file, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            _, behind = _varint(file, value, end)
        elif wire == BYTES:
            length, value = _varint(file, value, end)
            behind = value + length
        elif wire in (EIGHT, FOUR):
            behind = value + (8 if wire == EIGHT else 4)
        else:
            raise _Odd
        if behind > end:
            raise _Odd
        yield _Field(number, wire, at, value, behind)
        at = behind


def _varint(file: IO[bytes], at: int, end: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    file.seek(at)
    given = file.read(min(10, end - at))
    number = 0
    for index, byte in enumerate(given):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, at + index + 1
    raise _Odd


def _written(number: int, value: bytes) -> bytes:
    """A field of bytes."""
    head = []
    for rest in (number << 3 | BYTES, len(value)):
        while rest > 0x7F:
            head.append(rest & 0x7F | 0x80)
            rest >>= 7
        head.append(rest)
    return bytes(head) + value


def _bytes(file: IO[bytes], start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)
