"""The protocol's messages as classes, made from `inference.proto` when they are first needed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from neurenix.packages import need

#: A token of a .proto file: a word, a number, a string or a sign; comments and blanks are skipped.
_TOKEN = re.compile(r'//[^\n]*|\s+|([\w.]+|"[^"]*"|[{}()<>=;,])')

#: Names of scalar types, and their numbers in descriptors.
_SCALARS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
}  # fmt: skip
_MESSAGE, _ENUM = 11, 14
_OPTIONAL, _REPEATED = 1, 3


@functools.cache
def load() -> SimpleNamespace:
    """The message classes by name, nested ones as attributes of theirs, and `enums`: names and numbers by enum.

    They stand in a pool of their own, so that a client library in the same process may have its own of these names.
    Raises `MissingPackageError` without protobuf.
    """
    descriptor_pool = need("google.protobuf.descriptor_pool", "Open Inference Protocol v2")
    message_factory = need("google.protobuf.message_factory", "Open Inference Protocol v2")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_Reader(_text()).file().SerializeToString())
    file = pool.FindFileByName("inference.proto")
    classes = {name: message_factory.GetMessageClass(kind) for name, kind in file.message_types_by_name.items()}
    enums = {name: dict(kind.values_by_name) for name, kind in file.enum_types_by_name.items()}
    numbers = {name: {value: entry.number for value, entry in found.items()} for name, found in enums.items()}
    return SimpleNamespace(enums=numbers, pool=pool, **classes)


def methods() -> list[tuple[str, str, str]]:
    """The name, request and response of each method of the service."""
    pattern = r"rpc (\w+)\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)"
    return [(match[1], match[2], match[3]) for match in re.finditer(pattern, _text())]


def _text() -> str:
    return files(__package__).joinpath("inference.proto").read_text("utf-8")


class _Reader:
    """Reads the part of the .proto language that `inference.proto` is written in into a descriptor."""

    def __init__(self, text: str) -> None:
        self._tokens: Iterator[str] = (match[1] for match in _TOKEN.finditer(text) if match[1])
        self._enums = set(re.findall(r"^enum (\w+)", text, re.MULTILINE))

    def file(self) -> Any:
        descriptors = need("google.protobuf.descriptor_pb2", "Open Inference Protocol v2")
        found = descriptors.FileDescriptorProto(name="inference.proto", package="inference", syntax="proto3")
        for word in self._tokens:
            if word == "message":
                self._message(found.message_type.add(name=next(self._tokens)), "inference")
            elif word == "enum":
                self._enum(found.enum_type.add(name=next(self._tokens)))
            elif word == "service":
                self._skip_service()
        return found

    def _skip_service(self) -> None:
        depth = 0
        for word in self._tokens:
            depth += (word == "{") - (word == "}")
            if word == "}" and depth == 0:
                return

    def _enum(self, target: Any) -> None:
        next(self._tokens)
        while (name := next(self._tokens)) != "}":
            next(self._tokens)
            target.value.add(name=name, number=int(next(self._tokens)))
            next(self._tokens)

    def _message(self, target: Any, scope: str) -> None:
        scope = f"{scope}.{target.name}"
        next(self._tokens)
        union: int | None = None
        while (word := next(self._tokens)) != "}" or union is not None:
            if word == "}":
                union = None
            elif word == "message":
                self._message(target.nested_type.add(name=next(self._tokens)), scope)
            elif word == "oneof":
                target.oneof_decl.add(name=next(self._tokens))
                union = len(target.oneof_decl) - 1
                next(self._tokens)
            elif word == "map":
                self._map(target, scope)
            else:
                label = _REPEATED if word == "repeated" else _OPTIONAL
                kind = next(self._tokens) if word == "repeated" else word
                field = self._field(target, kind, scope, label)
                if union is not None:
                    field.oneof_index = union

    def _field(self, target: Any, kind: str, scope: str, label: int) -> Any:
        name = next(self._tokens)
        next(self._tokens)
        field = target.field.add(name=name, number=int(next(self._tokens)), label=label)
        next(self._tokens)
        self._type(field, kind, target, scope)
        return field

    def _type(self, field: Any, kind: str, target: Any, scope: str) -> None:
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
            return
        nested = any(inner.name == kind for inner in target.nested_type)
        field.type = _ENUM if kind in self._enums else _MESSAGE
        field.type_name = f".{scope}.{kind}" if nested else f".inference.{kind}"

    def _map(self, target: Any, scope: str) -> None:
        _, _, _, kind, _ = (next(self._tokens) for _ in range(5))
        name = next(self._tokens)
        next(self._tokens)
        number = int(next(self._tokens))
        next(self._tokens)
        entry = target.nested_type.add(name="".join(word.title() for word in name.split("_")) + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_OPTIONAL, type=_SCALARS["string"])
        self._type(entry.field.add(name="value", number=2, label=_OPTIONAL), kind, target, scope)
        target.field.add(
            name=name, number=number, label=_REPEATED, type=_MESSAGE, type_name=f".{scope}.{entry.name}"
        )  # fmt: skip
