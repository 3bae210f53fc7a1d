"""The name that somebody meant, as the hints of errors say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from neurenix._native import nearest


def hint(name: object, names: Iterable[str], refusal: Callable[[str], str | None] | None = None) -> str | None:
    """A hint at the one of `names` that is meant by `name`; None where none is.

    `refusal` says of a name why it is refused as well and what to do instead, or None where it is not.
    """
    near = nearest(str(name), list(names))
    if near is None:
        return None
    reason = refusal(near) if refusal else None
    return f"the nearest name is {near!r}" + (f", {reason}" if reason else "")
