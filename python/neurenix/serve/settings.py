"""How the server listens, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass

from neurenix.errors import InvalidArgumentError

#: Addresses that only this machine reaches.
LOOPBACK = ("127.0.0.1", "::1", "localhost")

CONTROLS = ("none", "explicit", "poll")


@dataclass(frozen=True)
class Settings:
    """Settings of a server. A port of 0 is one that is free, None: not served.

    `token`: what requests bring as `Authorization: Bearer TOKEN`. It is needed to load, unload and roll back, and with
    `protect="all"` for everything but health and metrics. `control` "explicit" lets requests load and unload, "poll"
    follows the folders every `poll_s` seconds, "none" serves what is there at the start. Sizes are in bytes, times in
    seconds.
    """

    host: str = "127.0.0.1"
    http_port: int | None = 8000
    grpc_port: int | None = 8001
    token: str | None = None
    protect: str = "control"
    control: str = "none"
    poll_s: float = 15.0
    max_request: int = 64 << 20
    max_pending: int = 1 << 30
    max_connections: int = 1024
    body_timeout_s: float = 30.0
    drain_s: float = 30.0
    strict_readiness: bool = False
    keep_previous: bool = True
    trace: bool = False

    def __post_init__(self) -> None:
        if self.control not in CONTROLS:
            raise InvalidArgumentError("there is no such control", expected=", ".join(CONTROLS), got=self.control)
        if self.protect not in ("control", "all"):
            raise InvalidArgumentError("there is no such protection", expected="control, all", got=self.protect)
        if self.token is not None and len(self.token) < 8:
            raise InvalidArgumentError("the token is too short", expected="8 characters or more")
        if self.protect == "all" and self.token is None:
            raise InvalidArgumentError("protection needs a token", hint="--token-file FILE")
        if self.control == "explicit" and self.token is None and self.host not in LOOPBACK:
            raise InvalidArgumentError(
                "anybody who reaches this address could load and unload models", expected="a token",
                got=f"host {self.host}", hint="--token-file FILE, or listen on 127.0.0.1",
            )  # fmt: skip
        for name in ("max_request", "max_pending", "max_connections", "body_timeout_s", "drain_s", "poll_s"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(f"{name} is too small", expected="more than 0", got=str(getattr(self, name)))
        for name in ("http_port", "grpc_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port < 1 << 16:
                raise InvalidArgumentError(f"{name} is no port", expected="0 to 65535", got=str(port))
        if self.http_port is None and self.grpc_port is None:
            raise InvalidArgumentError("the server has no port", expected="one for HTTP or gRPC")
