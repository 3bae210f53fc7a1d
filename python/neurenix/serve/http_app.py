"""The protocol by HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from neurenix.log import LOG
from neurenix.serve import config as configs
from neurenix.serve import http_format, metrics
from neurenix.serve.core import Core
from neurenix.serve.status import Refused, Status, refusal

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Answer = tuple[Headers, bytes]

#: Requests that take longer than this many seconds are watched for clients that go away.
_WATCH_AFTER_S = 0.005

_JSON: Headers = [(b"content-type", b"application/json")]
_CLOSE = (b"connection", b"close")


class _ClientGone(Exception):
    """Nobody waits for the answer any more."""


class HttpApp:
    """Answers requests of HTTP."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: Bytes of requests that are being read or answered.
        self.pending_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, as ASGI calls it."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close"})
            return
        call = _Call(self, scope, receive)
        try:
            status, (headers, body) = 200, await self._answer(call)
        except _ClientGone:
            return
        except Exception as error:
            found = refusal(error)
            if found.status is Status.INTERNAL:
                LOG.error("%s: %s", scope["path"][:200], found, exc_info=None if isinstance(error, Refused) else error)
            status, (headers, body) = found.status.http, _error(found)
        finally:
            self.pending_bytes -= call.counted
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": status,
                    "headers": [*headers, (b"content-length", length)]})  # fmt: skip
        if _CLOSE in headers:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await call.discard()
            body = b""
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, call: _Call) -> Answer:
        words = call.scope["path"].strip("/").split("/")
        if words[0] == "metrics" and len(words) == 1:
            call.require("GET")
            content = metrics.render(self._core.registry, self._core.ready, self.pending_bytes)
            return [(b"content-type", metrics.CONTENT_TYPE)], content
        if words[0] != "v2":
            raise _not_found(call)
        if words[1:2] == ["health"]:
            return self._health(call, words[2:])
        if words[1:3] == ["repository", "models"] and len(words) == 5:
            return await self._control(call, words[3], words[4])
        self._core.authorize(call.header(b"authorization"))
        if words[1:2] == ["models"] and len(words) > 2:
            return await self._model(call, words[2:])
        if len(words) == 1:
            call.require("GET")
            return _json(self._core.metadata())
        if words[1:] == ["repository", "index"]:
            call.require("POST")
            body = await call.body()
            only_ready = bool(body) and http_format.json_object(body).get("ready") is True
            return _json(self._core.registry.index(only_ready))
        raise _not_found(call)

    def _health(self, call: _Call, words: list[str]) -> Answer:
        call.require("GET")
        if words == ["live"] or (words == ["ready"] and self._core.ready):
            return _JSON, b""
        if words == ["ready"]:
            raise Refused(Status.UNAVAILABLE, "the server is not ready", retry_after=1)
        raise _not_found(call)

    async def _control(self, call: _Call, name: str, verb: str) -> Answer:
        call.require("POST")
        self._core.authorize(call.header(b"authorization"), control=True)
        body = await call.body()
        given = (http_format.json_object(body) if body else {}).get("parameters", {})
        if not isinstance(given, dict):
            raise Refused(Status.INVALID, "'parameters' is no JSON object")
        if verb in ("load", "rollback"):
            await self._core.load(name, given | ({"rollback": True} if verb == "rollback" else {}))
        elif verb == "unload":
            await self._core.unload(name)
        else:
            raise _not_found(call)
        return _JSON, b""

    async def _model(self, call: _Call, words: list[str]) -> Answer:
        """/v2/models/NAME[/versions/VERSION][/VERB]."""
        name, rest, version = words[0], words[1:], ""
        if len(rest) >= 2 and rest[0] == "versions":
            version, rest = rest[1], rest[2:]
        verb = "/".join(rest)
        if verb == "infer":
            call.require("POST")
            return await self._infer(call, name, version)
        call.require("GET")
        core = self._core
        if verb == "stats" or (name == "stats" and not rest):
            chosen = core.chosen(name if verb else "", version)
            return _json({"model_stats": [core.statistics(served) for served in chosen]})
        if verb not in ("", "ready", "config"):
            raise _not_found(call)
        served = core.registry.find(name, version)
        if verb == "ready":
            return _JSON, b""
        return _json(core.model_metadata(served) if not verb else configs.to_dict(served.config()))

    async def _infer(self, call: _Call, name: str, version: str) -> Answer:
        core = self._core
        core.admit()
        served = core.registry.find(name, version)
        if call.header(b"content-encoding") not in (None, "identity"):
            raise Refused(Status.MEDIA_TYPE, "compressed bodies are not read", expected="no Content-Encoding")
        body = await call.body()
        if core.tracer.enabled:
            with core.tracer.request(name, str(served.version), call.headers()):
                return await self._inferred(call, name, version, body)
        return await self._inferred(call, name, version, body)

    async def _inferred(self, call: _Call, name: str, version: str, body: bytes) -> Answer:
        # The model may have been replaced while the body came.
        served = self._core.registry.find(name, version)
        try:
            request = http_format.decode(served, body, call.header(http_format.LENGTH_HEADER))
        except Refused:
            served.statistics.failed("OTHER", 0)
            raise
        async with call.watched():
            outputs = await served.infer(request)
        return http_format.encode(served, request, outputs)


class _Call:
    """A request of HTTP. `counted`: its bytes that count as pending."""

    def __init__(self, app: HttpApp, scope: Scope, receive: Receive) -> None:
        self._app = app
        self.scope = scope
        self._receive = receive
        self.counted = 0
        #: When the body must have come, by the clock of the event loop.
        self._deadline = asyncio.get_running_loop().time() + app._core.settings.body_timeout_s

    def header(self, name: bytes) -> str | None:
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value.decode("latin-1"))
        return None

    def headers(self) -> dict[str, str]:
        return {key.decode("latin-1"): value.decode("latin-1") for key, value in self.scope["headers"]}

    def require(self, method: str) -> None:
        if self.scope["method"] != method:
            raise Refused(Status.METHOD, "this is not done by such a method", expected=method, got=self.scope["method"])

    async def body(self) -> bytes:
        """The body; raises `Refused` where it is too long or too slow, and `_ClientGone`."""
        self._count(int(length) if (length := self.header(b"content-length") or "0").isdecimal() else 0, 0)
        task, slow = asyncio.current_task(), False

        def expire() -> None:
            nonlocal slow
            slow = True
            assert task is not None
            task.cancel()

        timer = asyncio.get_running_loop().call_at(self._deadline, expire)
        chunks: list[bytes] = []
        read = 0
        try:
            while True:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise _ClientGone
                chunks.append(message.get("body", b""))
                read += len(chunks[-1])
                self._count(read, self.counted)
                if not message.get("more_body", False):
                    break
        except asyncio.CancelledError:
            if not slow:
                raise
            raise Refused(
                Status.SLOW, "the body did not come in time",
                expected=f"all of it within {self._app._core.settings.body_timeout_s:g} s", got=f"{read} bytes",
            ) from None  # fmt: skip
        finally:
            timer.cancel()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def discard(self) -> None:
        """Reads what is left of the body, for as long as a body may take.

        A connection that is closed with bytes unread is reset (RFC 9112, 9.6), and a client that still sends would
        see that instead of the answer.
        """

        async def read() -> None:
            more = True
            while more:
                more = (await self._receive()).get("more_body", False)

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(read(), self._deadline - asyncio.get_running_loop().time())

    def _count(self, size: int, counted: int) -> None:
        settings = self._app._core.settings
        if size > settings.max_request:
            raise Refused(
                Status.TOO_LARGE, "the request is too large", expected=f"at most {settings.max_request} bytes",
                got=str(size), hint="--max-request raises the limit",
            )  # fmt: skip
        more = size - counted
        if more <= 0:
            return
        if self._app.pending_bytes + more > settings.max_pending:
            raise Refused(Status.FULL, "the server holds as many bytes of requests as it may", retry_after=1)
        self._app.pending_bytes += more
        self.counted += more

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Cancels what happens inside when the client goes away, and raises `_ClientGone` then."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        watcher: asyncio.Task[None] | None = None
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await self._receive())["type"] != "http.disconnect":
                pass
            gone = True
            assert task is not None
            task.cancel()

        def begin() -> None:
            nonlocal watcher
            watcher = loop.create_task(watch())

        timer = loop.call_later(_WATCH_AFTER_S, begin)
        try:
            yield
        except asyncio.CancelledError:
            if gone:
                raise _ClientGone from None
            raise
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()


def _json(content: Any) -> Answer:
    return _JSON, json.dumps(content).encode()


def _not_found(call: _Call) -> Refused:
    return Refused(Status.NOT_FOUND, "there is nothing at this path", got=call.scope["path"][:200])


def _error(found: Refused) -> Answer:
    headers = list(_JSON)
    if found.retry_after is not None:
        headers.append((b"retry-after", str(found.retry_after).encode()))
    if found.status is Status.UNAUTHENTICATED:
        headers.append((b"www-authenticate", b"Bearer"))
    if found.status is Status.METHOD and found.expected:
        headers.append((b"allow", found.expected.encode()))
    if found.status in (Status.TOO_LARGE, Status.SLOW, Status.FULL):
        # The rest of the body is of no use.
        headers.append(_CLOSE)
    return headers, json.dumps({"error": str(found)}).encode()
