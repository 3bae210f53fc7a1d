"""A server for the tests, and what they ask it with."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from neurenix.serve import ServeOptions, Server, Settings
from tests.serve import models

#: A token, for the tests that need one.
TOKEN = "correct-horse-battery"


@pytest.fixture(autouse=True, scope="session")
def packages() -> None:
    """Skips everything where a package of the extra `serve` is missing."""
    for name in ("uvicorn", "httptools", "uvloop", "grpc", "google.protobuf"):
        pytest.importorskip(name)


class Reply(NamedTuple):
    """What came back by HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of an error."""
        return str(self.json["error"])


def ask(server: Server, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
    """One request on a connection of its own; a dict is sent as JSON."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    connection = http.client.HTTPConnection(str(server.http).removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, data, dict(headers or {}))
        reply = connection.getresponse()
        return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
    finally:
        connection.close()


def vector(rows: int = 1, value: float = 1.0) -> dict[str, Any]:
    """A request for the model `mlp`, as JSON."""
    return {"inputs": [{"name": "input", "shape": [rows, 16], "datatype": "FP32", "data": [value] * (16 * rows)}]}


Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers at free ports of this machine, and ends them behind the test."""
    running: list[Server] = []

    def begin(*given: Any, options: ServeOptions | None = None, **settings: Any) -> Server:
        ports = {"http_port": 0, "grpc_port": None} | settings
        server = Server([str(word) for word in given], Settings(**ports), options or ServeOptions(device="cpu"))
        running.append(server)
        server.start()
        return server

    yield begin
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models of `models`, as a model repository. Not to be written into."""
    return models.write_repository(tmp_path_factory.mktemp("repository"))


class Addresses(NamedTuple):
    """Where a server listens: host and port for HTTP and for gRPC."""

    http: str
    grpc: str


@pytest.fixture(scope="session")
def addresses(repository: Path) -> Iterator[Addresses]:
    """Those of a server with the repository: ours, or the one that SERVE_TEST_HTTP and SERVE_TEST_GRPC name."""
    if "SERVE_TEST_HTTP" in os.environ:
        yield Addresses(os.environ["SERVE_TEST_HTTP"], os.environ["SERVE_TEST_GRPC"])
        return
    settings = Settings(http_port=0, grpc_port=0, control="explicit")
    with Server([str(repository)], settings, ServeOptions(device="cpu")) as server:
        yield Addresses(str(server.http).removeprefix("http://"), str(server.grpc))
