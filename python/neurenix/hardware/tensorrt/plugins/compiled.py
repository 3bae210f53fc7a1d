"""Creators of libraries in C++, as the registry shows them to Python."""

from __future__ import annotations

import dataclasses
from typing import Any

from neurenix import _native
from neurenix.hardware.tensorrt.plugins.fields import (
    SERIALIZED,
    PluginField,
    PluginFieldCollection,
    PluginFieldType,
    Value,
    pack,
)

#: Name, version and namespace.
Identity = tuple[str, str, str]


class LibraryPlugin:
    """A plugin of a library in C++, of fields: what `add_plugin_v2` takes. It is made when it is added."""

    def __init__(self, identity: Identity, fields: dict[str, Value]) -> None:
        self.identity, self.fields = identity, fields
        self.plugin_type, self.plugin_version, self.plugin_namespace = identity


class LibraryCreator:
    """The creator of a library in C++."""

    def __init__(self, identity: Identity) -> None:
        self.name, self.plugin_version, self.plugin_namespace = self._identity = identity

    @property
    def field_names(self) -> PluginFieldCollection:
        """The fields that it reads, without data."""
        declared = _native.declared_fields(self._identity)
        return PluginFieldCollection(PluginField(name, None, PluginFieldType(number)) for name, number in declared)

    def create_plugin(self, name: str, field_collection: Any, phase: Any = None) -> LibraryPlugin:
        """A plugin of fields."""
        return LibraryPlugin(self._identity, {field.name: pack(field.name, field) for field in field_collection})

    def deserialize_plugin(self, name: str, serialized_plugin: bytes) -> LibraryPlugin:
        """A plugin of what another one serialised."""
        return LibraryPlugin(self._identity, {SERIALIZED: pack(SERIALIZED, bytes(serialized_plugin))})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LibraryCreator) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


@dataclasses.dataclass(frozen=True)
class PluginLibraryHandle:
    """A library that was loaded: its file, and the identities of its plugins."""

    path: str
    plugins: list[Identity]
