"""The parameters of a request: priority and timeout; what this server does not do is refused by name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from neurenix.serve.status import Refused, Status

#: Priorities go from 1, the highest, to this; a request without one has the middle.
LOWEST = 9
DEFAULT = 5

#: Longer timeouts are as good as none.
_LONGEST_US = 10**14

_REFUSED = {
    "sequence_id": "sequence batching",
    "sequence_start": "sequence batching",
    "sequence_end": "sequence batching",
    "shared_memory_region": "shared memory",
    "shared_memory_byte_size": "shared memory",
    "shared_memory_offset": "shared memory",
    "classification": "the classification extension",
}


def check(parameters: Mapping[str, Any]) -> None:
    """Raises `Refused` for parameters of extensions that this server does not have."""
    for name in parameters:
        # What clients send where nothing was asked for.
        if name in _REFUSED and parameters[name] not in (0, False, ""):
            raise Refused(
                Status.INVALID, f"this server does not do {_REFUSED[name]}", got=f"parameter {name!r}",
                hint="leave the parameter out; GET /v2 lists the extensions",
            )  # fmt: skip


def priority(parameters: Mapping[str, Any]) -> int:
    """The priority of a request."""
    given = _whole(parameters, "priority", LOWEST)
    return given or DEFAULT


def deadline(parameters: Mapping[str, Any], default_us: int = 0) -> float | None:
    """When nobody waits for the request any more, on the clock of `time.monotonic()`; `timeout` is in microseconds."""
    given = _whole(parameters, "timeout", _LONGEST_US) or default_us
    return time.monotonic() + given / 1e6 if given else None


def _whole(parameters: Mapping[str, Any], name: str, most: int) -> int:
    given = parameters.get(name, 0)
    if type(given) is str and given.isascii() and given.isdecimal() and len(given) < 20:
        given = int(given)
    if type(given) is not int or not 0 <= given <= most:
        raise Refused(
            Status.INVALID, f"parameter {name!r} is out of range", expected=f"an integer from 0 to {most}",
            got=repr(given)[:80],
        )  # fmt: skip
    return given


def deadline_in(seconds: float | None) -> float | None:
    """When so many seconds have passed, on the clock of `time.monotonic()`; None where there is no such time."""
    return time.monotonic() + seconds if seconds is not None and seconds < _LONGEST_US / 1e6 else None
