"""The protocol by gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import accumulate
from typing import Any

from neurenix.log import LOG
from neurenix.packages import need
from neurenix.serve import grpc_format, messages
from neurenix.serve.core import Core
from neurenix.serve.spec import shown
from neurenix.serve.status import Refused, Status, refusal

Handler = Callable[[Any, Any], Awaitable[Any]]

#: The service of `grpc.health.v1`, whose messages are one field each: a status of 1 is SERVING, 2 is not.
_HEALTH = "grpc.health.v1.Health"

#: The text of an error takes at most so many bytes of the headers: a client that finds more than 8 KiB there sees
#: neither the text nor the status.
_MOST_DETAILS = 4 << 10


class GrpcService:
    """Answers calls of gRPC."""

    def __init__(self, core: Core) -> None:
        """Raises `MissingPackageError` without grpcio and protobuf."""
        self._core = core
        self._grpc = need("grpc", "serving by gRPC", ["google"])
        self._aio = need("grpc.aio", "serving by gRPC")
        self._messages = messages.load()
        self._damaged = need("google.protobuf.message", "serving by gRPC").DecodeError

    def server(self) -> Any:
        """A server of grpc.aio with the protocol's methods, without a port yet."""
        settings = self._core.settings
        server = self._aio.server(
            options=[
                ("grpc.max_receive_message_length", min(settings.max_request, 2**31 - 1)),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=settings.max_connections,
        )
        server.add_generic_rpc_handlers((self._handlers(), self._health()))
        return server

    def _handlers(self) -> Any:
        found = {}
        for name, request, response in messages.methods():
            kind, answer = getattr(self._messages, request), getattr(self._messages, response)
            if name == "ModelStreamInfer":
                found[name] = self._grpc.stream_stream_rpc_method_handler(
                    self._stream, response_serializer=answer.SerializeToString
                )
                continue
            found[name] = self._grpc.unary_unary_rpc_method_handler(
                self._guarded(name, kind, getattr(self, f"_{_snake(name)}")),
                response_serializer=answer.SerializeToString,
            )
        return self._grpc.method_handlers_generic_handler("inference.GRPCInferenceService", found)

    def _health(self) -> Any:
        async def check(request: bytes, context: Any) -> bytes:
            return b"\x08\x01" if self._core.ready else b"\x08\x02"

        handler = self._grpc.unary_unary_rpc_method_handler(check)
        return self._grpc.method_handlers_generic_handler(_HEALTH, {"Check": handler})

    def _guarded(self, name: str, kind: Any, handler: Handler) -> Handler:
        """A handler whose errors become statuses of gRPC."""
        control = name in ("RepositoryModelLoad", "RepositoryModelUnload")
        health = name in ("ServerLive", "ServerReady")

        async def guarded(request: bytes, context: Any) -> Any:
            try:
                if not health:
                    self._core.authorize(_metadata(context, "authorization"), control)
                return await handler(self._parsed(kind, request), context)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                found = refusal(error)
                if found.status is Status.INTERNAL and not isinstance(error, Refused):
                    LOG.error("%s: %s", name, found, exc_info=error)
                trailing = (("retry-after", str(found.retry_after)),) if found.retry_after is not None else ()
                await context.abort(getattr(self._grpc.StatusCode, found.status.grpc), _details(str(found)), trailing)

        return guarded

    def _parsed(self, kind: Any, data: bytes) -> Any:
        """A message of its bytes; raises `Refused` for bytes that are none, which grpcio would log at length."""
        try:
            return kind.FromString(data)
        except self._damaged as error:
            raise Refused(Status.INVALID, f"the request is no {kind.DESCRIPTOR.name}: {error}") from None

    async def _server_live(self, request: Any, context: Any) -> Any:
        return self._messages.ServerLiveResponse(live=True)

    async def _server_ready(self, request: Any, context: Any) -> Any:
        return self._messages.ServerReadyResponse(ready=self._core.ready)

    async def _model_ready(self, request: Any, context: Any) -> Any:
        try:
            self._core.registry.find(request.name, request.version)
        except Refused as error:
            if error.status is not Status.UNAVAILABLE:
                raise
            return self._messages.ModelReadyResponse(ready=False)
        return self._messages.ModelReadyResponse(ready=True)

    async def _server_metadata(self, request: Any, context: Any) -> Any:
        return self._messages.ServerMetadataResponse(**self._core.metadata())

    async def _model_metadata(self, request: Any, context: Any) -> Any:
        served = self._core.registry.find(request.name, request.version)
        return self._messages.ModelMetadataResponse(**self._core.model_metadata(served))

    async def _model_config(self, request: Any, context: Any) -> Any:
        served = self._core.registry.find(request.name, request.version)
        return self._messages.ModelConfigResponse(config=served.config())

    async def _model_statistics(self, request: Any, context: Any) -> Any:
        chosen = self._core.chosen(request.name, request.version)
        return self._messages.ModelStatisticsResponse(model_stats=[self._core.statistics(one) for one in chosen])

    async def _repository_index(self, request: Any, context: Any) -> Any:
        return self._messages.RepositoryIndexResponse(models=self._core.registry.index(request.ready))

    async def _repository_model_load(self, request: Any, context: Any) -> Any:
        await self._core.load(request.model_name, grpc_format.parameters_of(request.parameters))
        return self._messages.RepositoryModelLoadResponse()

    async def _repository_model_unload(self, request: Any, context: Any) -> Any:
        await self._core.unload(request.model_name)
        return self._messages.RepositoryModelUnloadResponse()

    async def _model_infer(self, request: Any, context: Any) -> Any:
        core = self._core
        core.admit()
        if core.tracer.enabled:
            headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
            with core.tracer.request(request.model_name, request.model_version, headers):
                return await self._inferred(request, context)
        return await self._inferred(request, context)

    async def _inferred(self, message: Any, context: Any) -> Any:
        served = self._core.registry.find(message.model_name, message.model_version)
        try:
            _check_contents(message)
            request = grpc_format.decode(served, message, context.time_remaining())
        except Refused:
            served.statistics.failed("OTHER", 0)
            raise
        return grpc_format.encode(served, request, await served.infer(request))

    async def _stream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """One response for each request, in their order; an error is told in its response and ends nothing."""
        kind = self._messages.ModelStreamInferResponse
        async for data in requests:
            request = kind.FromString(b"").infer_response
            try:
                request = self._parsed(self._messages.ModelInferRequest, data)
                self._core.authorize(_metadata(context, "authorization"))
                answer = kind(infer_response=await self._model_infer(request, context))
            except Exception as error:
                # The id tells the client which request it was.
                answer = kind(error_message=str(refusal(error)))
                answer.infer_response.id = request.id
            yield answer


def _check_contents(message: Any) -> None:
    """Refuses inputs that have elements beside their bytes: one of both would be ignored."""
    if not message.raw_input_contents:
        return
    for entry in message.inputs:
        fields = [field.name for field, _ in entry.contents.ListFields()]
        if fields:
            raise Refused(
                Status.INVALID, f"input {shown(entry.name)} has its data twice",
                expected="no contents where there are raw_input_contents", got=", ".join(fields),
            )  # fmt: skip


def _details(text: str) -> str:
    """A text, cut to what it may take in a header, where all but ASCII's letters are three characters for a byte."""
    begin = text[:_MOST_DETAILS]
    plain = (" " <= letter <= "~" and letter != "%" for letter in begin)
    sizes = (1 if is_plain else 3 * len(letter.encode()) for letter, is_plain in zip(begin, plain, strict=True))
    kept = sum(size <= _MOST_DETAILS for size in accumulate(sizes))
    return text if kept == len(text) else f"{text[:kept]}..."


def _metadata(context: Any, name: str) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == name and isinstance(value, str):
            return value
    return None


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
