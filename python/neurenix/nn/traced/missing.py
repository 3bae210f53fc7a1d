"""Methods of PyTorch's tensors that a traced one does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neurenix import names
from neurenix.errors import UnsupportedError

if TYPE_CHECKING:
    from neurenix.nn.traced.base import Base

#: What to do in place of methods that give values, or that have another name.
_INSTEAD = {
    "add": "x + y",
    "div": "x / y",
    "eq": "x == y",
    "ge": "x >= y",
    "gt": "x > y",
    "le": "x <= y",
    "lt": "x < y",
    "mul": "x * y",
    "ne": "x != y",
    "neg": "-x",
    "sub": "x - y",
} | dict.fromkeys(("cpu", "cuda", "device", "item", "numpy", "tolist"), "forward is traced, so there are no values yet")


class NoMethodError(UnsupportedError, AttributeError):
    """As an AttributeError too: hasattr says that there is none."""


def method(name: str, of: Base) -> NoMethodError:
    """The error where a method is not there, which says what to write instead."""
    from neurenix.nn import functional

    instead = _INSTEAD.get(name.rstrip("_"))
    if instead is None and name in functional.__all__:
        instead = f"nn.functional.{name}(x, ...)"
    if instead is None and name.endswith("_") and hasattr(type(of), name[:-1]):
        instead = f"x = x.{name[:-1]}(...): nothing is changed in place"
    known = [known for known in dir(type(of)) if not known.startswith("_")]
    return NoMethodError(
        f"a traced tensor has no {name!r}", tensor=of.tensor.name, hint=instead or names.hint(name, known)
    )
