"""Requests to a server of the protocol, ours or another, by HTTP and by gRPC."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from neurenix.errors import DeviceError, InvalidArgumentError, UnsupportedError
from neurenix.hardware.optimized import Port
from neurenix.packages import need
from neurenix.serve import messages
from neurenix.serve.spec import DTYPES, NAMES, Array

#: Seconds after which a request counts as lost.
TIMEOUT_S = 60.0


class Counts(NamedTuple):
    """What a server has counted of a model: rows and executions."""

    inferences: int
    executions: int


class Failure(NamedTuple):
    """Why a request was not answered: in a word, and as the server has it."""

    reason: str
    text: str


#: Sends a request and waits for its answer: None where it came.
Send = Callable[[], Failure | None]


class Connection(Protocol):
    """A connection to a server, for one request at a time."""

    def ports(self, model: str, version: str) -> list[Port]:
        """The inputs of a model; raises `DeviceError` for what the server refuses."""

    def counts(self, model: str, version: str) -> Counts | None:
        """What the server counted; None where it does not tell."""

    def prepared(self, model: str, version: str, arrays: Mapping[str, Array]) -> Send:
        """A function that sends a request with these arrays."""

    def close(self) -> None:
        """Ends the connection."""


def connect(url: str, token: str | None = None) -> Connection:
    """A connection to http://HOST:PORT, https://HOST:PORT or grpc://HOST:PORT; raises `InvalidArgumentError`."""
    parts = address(url, ("http", "https", "grpc"))
    return _Grpc(parts.netloc, token) if parts.scheme == "grpc" else _Http(parts, token)


def address(url: str, schemes: Collection[str]) -> urllib.parse.SplitResult:
    """The parts of a server's address; raises `InvalidArgumentError` for one that is none, or is of another scheme."""
    expected = " or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)
    try:
        parts = urllib.parse.urlsplit(url)
        # What connections and requests can't take later.
        _ = parts.port, (parts.hostname or "").encode("idna"), parts.path.encode("ascii")
    except ValueError as error:
        raise InvalidArgumentError(
            f"this is no address of a server: {error}", expected=expected, got=repr(url)
        ) from error
    if parts.scheme not in schemes or not parts.hostname:
        raise InvalidArgumentError("this is no address of a server", expected=expected, got=repr(url))
    return parts


def message_of(body: bytes) -> str:
    """What a server says of an error."""
    text = body.decode("utf-8", "replace")[:1000]
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text


def _port(name: str, datatype: str, shape: Sequence[Any]) -> Port:
    if datatype not in DTYPES:
        raise UnsupportedError("no random data can be made for such an input", tensor=name, got=datatype)
    dims = tuple(int(d) if int(d) >= 0 else f"d{i}" for i, d in enumerate(shape))
    return Port(name, DTYPES[datatype], dims)


class _Http:
    def __init__(self, parts: urllib.parse.SplitResult, token: str | None) -> None:
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=TIMEOUT_S)
        self._base = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def _get(self, path: str) -> Any:
        try:
            self._connection.request("GET", self._base + path, headers=self._headers)
            reply = self._connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise DeviceError(f"the server does not answer: {error}", got=self._connection.host) from error
        if reply.status != 200:
            raise DeviceError(
                "the server refuses", got=f"{path}: {reply.status} {body.decode('utf-8', 'replace')[:500]}"
            )
        try:
            return json.loads(body)
        except ValueError as error:
            raise DeviceError("the server's answer is no JSON", got=body[:80].decode("latin-1")) from error

    def ports(self, model: str, version: str) -> list[Port]:
        found = self._get(_path(model, version))
        return [_port(entry["name"], entry["datatype"], entry["shape"]) for entry in found["inputs"]]

    def counts(self, model: str, version: str) -> Counts | None:
        try:
            found = self._get(f"{_path(model, version)}/stats")["model_stats"]
        except DeviceError:
            return None
        return Counts(
            sum(int(one["inference_count"]) for one in found), sum(int(one["execution_count"]) for one in found)
        )

    def prepared(self, model: str, version: str, arrays: Mapping[str, Array]) -> Send:
        inputs = [
            {"name": name, "shape": list(array.shape), "datatype": NAMES[array.dtype],
             "parameters": {"binary_data_size": array.nbytes}}
            for name, array in arrays.items()
        ]  # fmt: skip
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        body = b"".join([head, *(array.tobytes() for array in arrays.values())])
        path = f"{self._base}{_path(model, version)}/infer"
        headers = self._headers | {
            "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head)),
        }  # fmt: skip
        connection = self._connection

        def send() -> Failure | None:
            try:
                connection.request("POST", path, body, headers)
                reply = connection.getresponse()
                answer = reply.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                return Failure(type(error).__name__, str(error))
            return None if reply.status == 200 else Failure(str(reply.status), message_of(answer))

        return send

    def close(self) -> None:
        self._connection.close()


def _path(model: str, version: str) -> str:
    found = f"/v2/models/{urllib.parse.quote(model, safe='')}"
    return f"{found}/versions/{urllib.parse.quote(version, safe='')}" if version else found


class _Grpc:
    def __init__(self, address: str, token: str | None) -> None:
        self._grpc = need("grpc", "a grpc:// address", ["google"])
        self._messages = messages.load()
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        self._channel = self._grpc.insecure_channel(address, options=[*options, ("grpc.max_send_message_length", -1)])
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def _method(self, name: str) -> Any:
        return self._channel.unary_unary(f"/inference.GRPCInferenceService/{name}")

    def _call(self, method: str, /, **fields: Any) -> Any:
        request = getattr(self._messages, f"{method}Request")(**fields)
        try:
            found = self._method(method)(request.SerializeToString(), timeout=TIMEOUT_S, metadata=self._metadata)
        except self._grpc.RpcError as error:
            raise DeviceError("the server refuses", got=f"{method}: {error.code().name} {error.details()}") from error
        return getattr(self._messages, f"{method}Response").FromString(found)

    def ports(self, model: str, version: str) -> list[Port]:
        found = self._call("ModelMetadata", name=model, version=version)
        return [_port(entry.name, entry.datatype, entry.shape) for entry in found.inputs]

    def counts(self, model: str, version: str) -> Counts | None:
        try:
            found = self._call("ModelStatistics", name=model, version=version).model_stats
        except DeviceError:
            return None
        return Counts(sum(one.inference_count for one in found), sum(one.execution_count for one in found))

    def prepared(self, model: str, version: str, arrays: Mapping[str, Array]) -> Send:
        request = self._messages.ModelInferRequest(model_name=model, model_version=version)
        for name, array in arrays.items():
            request.inputs.add(name=name, datatype=NAMES[array.dtype], shape=array.shape)
            request.raw_input_contents.append(np.ascontiguousarray(array).tobytes())
        # The same bytes each time: what is measured is the server.
        data, infer, metadata = request.SerializeToString(), self._method("ModelInfer"), self._metadata

        def send() -> Failure | None:
            try:
                infer(data, timeout=TIMEOUT_S, metadata=metadata)
            except self._grpc.RpcError as error:
                return Failure(str(error.code().name), str(error.details()))
            return None

        return send

    def close(self) -> None:
        self._channel.close()
