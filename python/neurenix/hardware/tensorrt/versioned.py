"""IVersionedInterface: what plugins tell of themselves."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from neurenix.hardware.tensorrt.enums import Word


class APILanguage(Word):
    """The language of a plugin."""

    CPP = 0
    PYTHON = 1


class InterfaceInfo(NamedTuple):
    """Which interface an object has."""

    kind: str
    major: int
    minor: int


class IVersionedInterface:
    """What has an interface that later versions may extend."""

    _KIND: ClassVar = ""

    @property
    def api_language(self) -> APILanguage:
        """Python."""
        return APILanguage.PYTHON

    @property
    def interface_info(self) -> InterfaceInfo:
        """Its interface, of version 1.0."""
        return InterfaceInfo(self._KIND, 1, 0)
