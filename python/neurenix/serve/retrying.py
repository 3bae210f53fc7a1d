"""A client that asks again where a server was busy or went away."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

import numpy as np

from neurenix.errors import DeviceError, DTypeError, FormatError, InvalidArgumentError
from neurenix.serve.client import address, message_of
from neurenix.serve.http_format import LENGTH_HEADER
from neurenix.serve.spec import DTYPES, NAMES, Array

#: Answers after which another try makes sense: the server was busy, or failed in a way that may pass.
AGAIN = (408, 429, 500, 502, 503, 504)

#: Seconds between two tries: at first, and at most.
FIRST_S, MOST_S = 0.05, 5.0


class Client:
    """Asks models on a server of Open Inference Protocol v2 over HTTP. Any thread may call it.

    A request that was not answered, because the connection broke or the server was busy or failing, is sent again
    after a pause that doubles each time, or that the server's `Retry-After` names, until `timeout_s` have passed. A
    request may therefore be executed twice; inference has no effect but its answer.
    """

    def __init__(self, url: str, *, timeout_s: float = 60.0, token: str | None = None, headers: Any = None) -> None:
        """`headers`: more of them, such as `serve_multiplexed_model_id` for Ray Serve.

        Raises `InvalidArgumentError` for an address that is none.
        """
        self._parts = address(url, ("http", "https"))
        self._timeout = timeout_s
        self._headers = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        self._own = threading.local()
        #: Tries that were not answered, over all threads.
        self.retries = 0

    def infer(self, model: str, inputs: Mapping[str, Array], *, version: str = "") -> dict[str, Array]:
        """The outputs of a model by name.

        Raises `DTypeError` for arrays that the protocol does not know, `InvalidArgumentError` for what the server says
        is wrong about the request, and `DeviceError` where it gave no answer in time.
        """
        head, body = _encoded(inputs)
        path = f"{self._parts.path.rstrip('/')}/v2/models/{urllib.parse.quote(model, safe='')}"
        path += f"/versions/{urllib.parse.quote(version, safe='')}/infer" if version else "/infer"
        headers = self._headers | {"Content-Type": "application/octet-stream", LENGTH_HEADER.decode(): str(head)}
        end = time.monotonic() + self._timeout
        pause = FIRST_S
        while True:
            status, found, reply = self._once(path, body, headers, end)
            if status == 200:
                return decoded(found, reply)
            wait = max(pause * random.uniform(0.5, 1.0), _after(found))
            if status is not None and status not in AGAIN:
                raise InvalidArgumentError(f"the server refuses the request: {message_of(reply)}", got=str(status))
            if time.monotonic() + wait >= end:
                raise DeviceError(
                    f"the server gave no answer in {self._timeout:g} s: {message_of(reply)}",
                    got=str(status or "no answer"),
                )
            self.retries += 1
            time.sleep(wait)
            pause = min(2 * pause, MOST_S)

    def _once(
        self, path: str, body: bytes, headers: Mapping[str, str], end: float
    ) -> tuple[int | None, Mapping[str, str], bytes]:
        """Status, headers and body of one try; None and the reason where nothing came."""
        connection = getattr(self._own, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            connection = self._own.connection = kind(self._parts.netloc)
        left = max(0.01, end - time.monotonic())
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)
        try:
            connection.request("POST", path, body, headers)
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return None, {}, f"{type(error).__name__}: {error}".encode()


def _encoded(inputs: Mapping[str, Array]) -> tuple[int, bytes]:
    """How many bytes of a body are JSON, and the body."""
    described = []
    for name, array in inputs.items():
        if array.dtype not in NAMES:
            raise DTypeError(
                "the protocol has no such dtype", tensor=name, expected=", ".join(DTYPES), got=str(array.dtype)
            )
        described.append(
            {"name": name, "shape": list(array.shape), "datatype": NAMES[array.dtype],
             "parameters": {"binary_data_size": array.nbytes}}
        )  # fmt: skip
    head = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    return len(head), b"".join([head, *(np.ascontiguousarray(array).tobytes() for array in inputs.values())])


def decoded(headers: Mapping[str, str], body: bytes) -> dict[str, Array]:
    """The outputs of a response; raises `FormatError` for one that is none."""
    try:
        begin = int(headers.get(LENGTH_HEADER.decode(), len(body)))
        found: dict[str, Array] = {}
        for entry in json.loads(body[:begin])["outputs"]:
            dtype, size = DTYPES[entry["datatype"]], entry.get("parameters", {}).get("binary_data_size")
            if size is None:
                array = np.asarray(entry["data"], dtype)
            else:
                array = np.frombuffer(body[begin : begin + size], dtype).copy()
                begin += size
            found[entry["name"]] = array.reshape(entry["shape"])
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"the server's answer can't be read: {error}") from error


def _after(headers: Mapping[str, str]) -> float:
    """The seconds of `Retry-After`."""
    text = headers.get("retry-after", "")
    return min(float(text), MOST_S) if text.isdecimal() else 0.0
