"""The exceptions of Neurenix: one base class, and one subclass per kind that is also the fitting built-in."""

from __future__ import annotations

from typing import ClassVar

from neurenix import installed  # noqa: F401 - what is not ours says so at once


class Error(RuntimeError):
    """What went wrong, where, and the way out.

    `message` says what; the other attributes are texts, or None where they do not apply: `layer` and `tensor` name the
    place, `expected` and `got` what did not fit, `hint` what to do about it. `kind` is the word of the subclass.
    """

    kind: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        layer: str | None = None,
        tensor: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.layer = layer
        self.tensor = tensor
        self.expected = expected
        self.got = got
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        parts = ((name, getattr(self, name)) for name in _PARTS)
        return self.message + "".join(f"\n  {name}: {text}" for name, text in parts if text is not None)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.message, {name: getattr(self, name) for name in _PARTS})


_PARTS = ("layer", "tensor", "expected", "got", "hint")


def _restore(cls: type[Error], message: str, parts: dict[str, str | None]) -> Error:
    return cls(message, **parts)


class InvalidArgumentError(Error, ValueError):
    """A value that the caller gave is not acceptable."""

    kind = "invalid_argument"


class ShapeError(Error, ValueError):
    """A shape does not fit."""

    kind = "shape"


class DTypeError(Error, TypeError):
    """A dtype does not fit."""

    kind = "type"


class UnsupportedError(Error, NotImplementedError):
    """Nothing here can run or import this."""

    kind = "unsupported"


class FormatError(Error, ValueError):
    """A file is damaged, too new, or not ours."""

    kind = "format"


class FileError(Error, OSError):
    """The operating system refused."""

    kind = "io"


class OutOfMemoryError(Error, MemoryError):
    """Not enough memory."""

    kind = "memory"


class DeviceError(Error):
    """A library, device or driver failed."""

    kind = "device"


class PluginError(Error):
    """A plugin failed: its code raised, or gave what does not fit."""

    kind = "plugin"


class InternalError(Error):
    """A broken invariant of ours; always a defect of Neurenix."""

    kind = "internal"


class MissingPackageError(Error, ImportError):
    """A Python package that this needs is not installed."""

    kind = "missing_package"


_CLASSES: dict[str, type[Error]] = {
    cls.kind: cls
    for cls in (
        InvalidArgumentError,
        ShapeError,
        DTypeError,
        UnsupportedError,
        FormatError,
        FileError,
        OutOfMemoryError,
        DeviceError,
        PluginError,
        InternalError,
    )
}


def from_native(kind: str, message: str, parts: dict[str, str]) -> Error:
    """The exception for an error of the native module, which calls this."""
    return _CLASSES.get(kind, Error)(message, **parts)
