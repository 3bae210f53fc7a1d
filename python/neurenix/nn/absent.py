"""Modules of PyTorch that are not there, and why."""

from __future__ import annotations

from collections.abc import Sequence

from neurenix import names

#: Parts of names, and what is said of modules that have them.
_REASONS = {
    "FractionalMaxPool": "its windows are random",
    "Lazy": "shapes are said when a module is made: take the module of the name without Lazy",
    "Loss": "there is no training",
    "DataParallel": "an engine runs on one device; run one for each",
    "CrossMapLRN2d": "take LocalResponseNorm",
}


def why(name: str, known: Sequence[str]) -> str:
    """What an AttributeError says of a name."""
    reason = next((reason for part, reason in _REASONS.items() if part in name), None)
    said = reason or names.hint(name, known)
    return f"neurenix.nn has no {name}" + (f": {said}" if said else "")
