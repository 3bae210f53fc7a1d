"""Attributes that are set must be there: a misspelt one would change nothing, and nobody would be told."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from neurenix import names
from neurenix.errors import UnsupportedError
from neurenix.hardware.tensorrt.absent import OF_OBJECTS

_OURS = __name__.partition(".")[0]


class Strict:
    """Takes the attributes that its class declares, and no others; a class that a script derives takes any.

    Setting another one raises `AttributeError` with the nearest name, or `UnsupportedError` with the reason for what
    TensorRT has and nothing here does.
    """

    #: Attributes of TensorRT's that can't be set, and why.
    _REFUSED: ClassVar[dict[str, str]] = {}

    # A type checker that saw these would let every name pass.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absence(type(self), name))

        def __setattr__(self, name: str, value: Any) -> None:
            cls = type(self)
            if name.startswith("_") or name in declared(cls) or cls.__module__.partition(".")[0] != _OURS:
                object.__setattr__(self, name, value)
                return
            if name in self._REFUSED:
                raise UnsupportedError(f"{cls.__name__}.{name} can't be set: {self._REFUSED[name]}", got=repr(value))
            if hasattr(cls, name):
                raise AttributeError(f"{cls.__name__}.{name} can't be set")
            hint = names.hint(name, sorted(declared(cls)))
            way = f"; {hint}" if hint else ""
            raise AttributeError(f"{cls.__name__} has no attribute {name!r} that can be set{way}")


def absence(cls: type[Any], name: str) -> str:
    """What the error says of an attribute that objects of a class do not have; of TensorRT's with the reason."""
    reasons = (OF_OBJECTS.get(base.__name__, {}).get(name) for base in cls.__mro__)
    reason = next(filter(None, reasons), None)
    text = f"{cls.__name__} has no attribute {name!r}"
    return f"{text}: {reason}" if reason else text


@functools.cache
def declared(cls: type[Any]) -> frozenset[str]:
    """What classes annotate or have as properties; a property without a setter refuses on its own."""
    found: set[str] = set()
    for base in cls.__mro__:
        found |= {name for name, hint in vars(base).get("__annotations__", {}).items() if "ClassVar" not in str(hint)}
        found |= {name for name, member in vars(base).items() if isinstance(member, property)}
    return frozenset(name for name in found if not name.startswith("_"))
