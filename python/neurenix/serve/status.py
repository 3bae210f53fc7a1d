"""What a request that is refused is answered with, by HTTP and by gRPC."""

from __future__ import annotations

from enum import Enum
from typing import Any

from neurenix.errors import DTypeError, Error, InvalidArgumentError, OutOfMemoryError, ShapeError, UnsupportedError


class Status(Enum):
    """Why a request is refused: the HTTP status, and the name of gRPC's status."""

    INVALID = (400, "INVALID_ARGUMENT")
    UNAUTHENTICATED = (401, "UNAUTHENTICATED")
    FORBIDDEN = (403, "PERMISSION_DENIED")
    NOT_FOUND = (404, "NOT_FOUND")
    METHOD = (405, "UNIMPLEMENTED")
    SLOW = (408, "DEADLINE_EXCEEDED")
    TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
    MEDIA_TYPE = (415, "UNIMPLEMENTED")
    FULL = (429, "RESOURCE_EXHAUSTED")
    INTERNAL = (500, "INTERNAL")
    UNSUPPORTED = (501, "UNIMPLEMENTED")
    UNAVAILABLE = (503, "UNAVAILABLE")
    TIMEOUT = (504, "DEADLINE_EXCEEDED")

    @property
    def http(self) -> int:
        """The status of HTTP."""
        return int(self.value[0])

    @property
    def grpc(self) -> str:
        """The name of gRPC's status."""
        return str(self.value[1])


class Refused(Error):
    """A request that is not answered with outputs. `retry_after`: seconds after which it may be tried again."""

    kind = "refused"

    def __init__(self, status: Status, message: str, *, retry_after: int | None = None, **parts: Any) -> None:
        self.status = status
        self.retry_after = retry_after
        super().__init__(message, **parts)


#: Errors of ours that tell of a wrong request.
_WRONG = (InvalidArgumentError, ShapeError, DTypeError, UnsupportedError)


def refusal(error: BaseException) -> Refused:
    """The answer to a request that ended with this error."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, _WRONG):
        return Refused(Status.INVALID, str(error))
    if isinstance(error, OutOfMemoryError | MemoryError):
        return Refused(Status.UNAVAILABLE, f"there is not enough memory: {error}", retry_after=1)
    if isinstance(error, Error):
        return Refused(Status.INTERNAL, str(error))
    return Refused(Status.INTERNAL, f"{type(error).__name__}: {error}")


def line(error: BaseException) -> str:
    """An error in one line; one that is none of ours with its class."""
    text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    return one_line(text)


def one_line(text: str) -> str:
    """A text of several lines in one."""
    return "; ".join(part.strip() for part in text.splitlines())
