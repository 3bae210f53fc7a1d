"""What HTTP carries: JSON, bytes, and everything that is not right about them."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import time
from typing import Any

import numpy as np
import pytest

from neurenix.errors import InvalidArgumentError
from neurenix.serve import Server, Settings
from neurenix.serve.spec import listed
from tests.serve import models
from tests.serve.conftest import TOKEN, Start, ask, vector

INFER = "/v2/models/mlp/infer"
LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def server(repository: Any) -> Any:
    with Server([str(repository)], Settings(http_port=0, grpc_port=None, body_timeout_s=0.5)) as running:
        yield running


def changed(**changes: Any) -> dict[str, Any]:
    """A request whose input has some fields changed; None takes one out."""
    request = vector()
    request["inputs"][0] = {k: v for k, v in (request["inputs"][0] | changes).items() if v is not None}
    return request


def test_json_nested_and_flat(server: Server) -> None:
    x = np.random.default_rng().standard_normal((2, 16)).astype(np.float32)
    for data in (x.tolist(), x.ravel().tolist()):
        reply = ask(server, "POST", INFER, changed(shape=[2, 16], data=data))
        found = np.array(reply.json["outputs"][0]["data"]).reshape(reply.json["outputs"][0]["shape"])
        np.testing.assert_allclose(found, models.mlp_reference(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (changed(shape=[1, 15]), ["'input'", "[-1, 16]", "[1, 15]"]),
        (changed(shape=[2, 16]), ["'input'", "[2, 16]", "[16]"]),
        (changed(shape=[-1, 16]), ["'input'", "0 or more"]),
        (changed(shape=[1, True]), ["'input'", "integers"]),
        (changed(shape=[1 << 70, 16]), ["'input'", "integers"]),
        (changed(shape=None), ["'input'", "shape"]),
        (changed(datatype="FP64"), ["'input'", "FP32", "FP64"]),
        (changed(datatype=None), ["'input'", "FP32", "None"]),
        (changed(data=None), ["'input'", "data"]),
        (changed(data=["1"] * 16), ["'input'", "FP32"]),
        (changed(data=[[1], [2, 3]]), ["'input'", "array"]),
        (changed(data=[1e300] * 16), ["'input'", "range of FP32"]),
        (json.dumps(vector()).replace("1.0", "1e400", 1).encode(), ["'input'", "range of FP32"]),
        (json.dumps(changed(data=[[1.0] * 16])).replace("1.0", "-1e400", 1).encode(), ["'input'", "range of FP32"]),
        (changed(data=[True, *range(15)]), ["'input'", "FP32", "numbers"]),
        (changed(data=[[*range(15), False]]), ["'input'", "FP32", "numbers"]),
        (changed(data=[True] * 16), ["'input'", "FP32"]),
        (changed(name="x" * 10_000), ["no such input", "10002 characters"]),
        (changed(datatype="F" * 10_000), ["'input'", "FP32", "10002 characters"]),
        (changed(shape=["1" * 10_000]), ["'input'", "characters"]),
        (vector() | {"outputs": [{"name": "y" * 10_000}]}, ["output", "10002 characters"]),
        (changed(name="x"), ["no such input", "'x'", "input"]),
        (changed(name=7), ["'inputs'"]),
        ({"inputs": []}, ["'input'", "missing"]),
        ({"inputs": {}}, ["'inputs'"]),
        ({"inputs": vector()["inputs"] * 2}, ["twice"]),
        (vector() | {"outputs": [{"name": "y"}]}, ["'y'", "output"]),
        (vector() | {"parameters": {"sequence_id": 3}}, ["sequence batching"]),
        (vector() | {"parameters": {"priority": -1}}, ["'priority'", "-1"]),
        (vector() | {"parameters": {"timeout": "soon"}}, ["'timeout'", "soon"]),
        (vector() | {"parameters": 3}, ["'parameters'"]),
        (vector(17), ["1 to 16", "17"]),
        (changed(shape=[0, 16], data=[]), ["1 to 16", "0"]),
        (changed(parameters={"shared_memory_region": "r"}, data=None), ["shared memory"]),
        (vector() | {"outputs": [{"name": "output", "parameters": {"classification": 3}}]}, ["classification"]),
        (b"{", ["JSON"]),
        (b"[" * 100_000, ["JSON"]),
        (b"\xff\xfe", ["JSON"]),
        (b"3", ["JSON object"]),
        (b"", ["JSON"]),
    ],
)  # fmt: skip
def test_a_wrong_request_is_told_what_is_wrong(server: Server, body: Any, words: list[str]) -> None:
    reply = ask(server, "POST", INFER, body)
    assert reply.status == 400 and len(reply.error) < 1000
    for word in words:
        assert word in reply.error


def test_numbers_that_json_has_not_are_taken_by_name(server: Server) -> None:
    body = json.dumps(changed(data=[np.inf] + [1.0] * 15) | {"parameters": {"binary_data_output": True}})
    assert "Infinity" in body and ask(server, "POST", INFER, body.encode()).status == 200


def test_truth_values_are_no_integers(server: Server) -> None:
    inputs = [
        {"name": f"in_{name}", "shape": [1, 3], "datatype": name, "data": [1, True, 1]} for name in ("INT8", "FP64")
    ]
    for entry in inputs:
        reply = ask(server, "POST", "/v2/models/kinds/infer", {"inputs": [entry]})
        assert reply.status == 400 and f"no {entry['datatype']}" in reply.error


def test_long_lists_of_names_are_cut() -> None:
    assert listed(f"m{n}" for n in range(3)) == "m0, m1, m2" and listed([]) == ""
    found = listed(f"m{n}" for n in range(1000))
    assert found.endswith("m19 and 980 more")


def test_a_server_of_many_models_names_some(start: Start, repository: Any) -> None:
    running = start(*(f"m{n}={repository / 'fixed'}" for n in range(25)), control="explicit")
    assert "m19 and 5 more" in ask(running, "GET", "/v2/models/none").error
    for verb in ("load", "unload"):
        assert "m19 and 5 more" in ask(running, "POST", f"/v2/repository/models/none/{verb}").error


@pytest.mark.parametrize("value", [300, 1.5, "x", True, None, [1, 2]])
def test_integers_out_of_range_are_refused(server: Server, value: Any) -> None:
    inputs = [
        {"name": f"in_{name}", "shape": [1, 3], "datatype": name, "data": [False] * 3 if name == "BOOL" else [1, 1, 1]}
        for name in models.KINDS
    ]
    wrong = [entry | {"data": [value] * 3} if entry["name"] == "in_INT8" else entry for entry in inputs]
    assert ask(server, "POST", "/v2/models/kinds/infer", {"inputs": inputs}).status == 200
    reply = ask(server, "POST", "/v2/models/kinds/infer", {"inputs": wrong})
    assert reply.status == 400 and "in_INT8" in reply.error


@pytest.mark.parametrize(
    ("kind", "data", "wanted"),
    [
        ("UINT64", [2**64 - 1, 0, 2**63], [2**64 - 1, 0, 2**63]),
        ("FP64", [10**20, 1, 1.5], [1e20, 1.0, 1.5]),
        ("UINT64", [2**64, 0, 0], None),
        ("UINT64", [2**63, -1, 0], None),
        ("INT64", [2**63, 0, 0], None),
        ("FP64", [10**400, 1, 1], None),
    ],
)
def test_integers_beyond_64_bits(server: Server, kind: str, data: list[Any], wanted: list[Any] | None) -> None:
    inputs = [
        {"name": f"in_{name}", "shape": [1, 3], "datatype": name, "data": [False] * 3 if name == "BOOL" else [1, 1, 1]}
        for name in models.KINDS
    ]
    given = [entry | {"data": data} if entry["name"] == f"in_{kind}" else entry for entry in inputs]
    reply = ask(server, "POST", "/v2/models/kinds/infer", {"inputs": given})
    if wanted is None:
        assert reply.status == 400 and f"in_{kind}" in reply.error and "out of the range" in reply.error
        return
    found = {entry["name"]: entry["data"] for entry in reply.json["outputs"]}
    assert any(data == wanted for name, data in found.items() if kind in name), found


@pytest.mark.parametrize("name", ["http_port", "grpc_port"])
@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_ports_are_ports(name: str, port: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is no port"):
        Settings(**{name: port})  # type: ignore[arg-type]


@pytest.mark.parametrize("length", ["-1", "0", "99999", "x", "1e3", "9" * 40])
def test_a_wrong_length_of_the_json_is_refused(server: Server, length: str) -> None:
    reply = ask(server, "POST", INFER, vector(), {LENGTH: length})
    assert reply.status == 400 and LENGTH in reply.error


@pytest.mark.parametrize(("size", "tail"), [(64, 63), (63, 64), (1 << 40, 64), (-1, 64), (64, 65), ("64", 64)])
def test_wrong_numbers_of_bytes_are_refused(server: Server, size: Any, tail: int) -> None:
    head = json.dumps(changed(parameters={"binary_data_size": size}, data=None)).encode()
    reply = ask(server, "POST", INFER, head + bytes(tail), {LENGTH: str(len(head))})
    assert (reply.status == 400 and "bytes" in reply.error) or "binary_data_size" in reply.error


def test_bytes_at_an_odd_place(server: Server) -> None:
    x = np.random.default_rng().standard_normal((1, 16)).astype(np.float32)
    for blanks in range(4):
        request = changed(parameters={"binary_data_size": 64}, data=None)
        head = json.dumps(request).encode() + b" " * blanks
        reply = ask(server, "POST", INFER, head + x.tobytes(), {LENGTH: str(len(head))})
        np.testing.assert_allclose(reply.json["outputs"][0]["data"], models.mlp_reference(x)[0], rtol=1e-4, atol=1e-4)


def test_infinity_goes_as_bytes_alone(server: Server) -> None:
    x, path = np.full((2, 3), np.inf, np.float32), "/v2/models/fixed/infer"
    tensor = {"name": "input", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}}
    request = {"inputs": [tensor]}
    head = json.dumps(request).encode()
    reply = ask(server, "POST", path, head + x.tobytes(), {LENGTH: str(len(head))})
    assert reply.status == 501 and "binary_data_output" in reply.error
    head = json.dumps(request | {"parameters": {"binary_data_output": True}}).encode()
    reply = ask(server, "POST", path, head + x.tobytes(), {LENGTH: str(len(head))})
    assert reply.status == 200
    assert reply.body[int(reply.headers[LENGTH.lower()]) :] == x.tobytes()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", INFER, 405),
        ("POST", "/v2/models/mlp", 405),
        ("GET", "/", 404),
        ("GET", "/v3", 404),
        ("GET", "/v2/models/mlp/nothing", 404),
        ("GET", "/v2/models/none", 404),
        ("GET", "/v2/models/mlp/versions/9", 404),
        ("GET", "/v2/models/mlp/versions/x/ready", 404),
        ("GET", "/v2/health/other", 404),
        ("DELETE", "/v2/models/mlp", 405),
    ],
)
def test_paths_that_are_none(server: Server, method: str, path: str, status: int) -> None:
    reply = ask(server, method, path)
    assert reply.status == status and reply.error
    other = {"GET": "POST", "POST": "GET", "DELETE": "GET"}[method]
    assert reply.headers.get("allow") == (other if status == 405 else None)


TRAVERSAL = [
    "..",
    "../mlp",
    "..%2f..%2fetc",
    "%2e%2e",
    "mlp%00",
    "a%5cb",
    "%2fetc%2fpasswd",
    ".mlp",
    "m" * 300,
    "é",
    "-",
]


@pytest.mark.parametrize("name", TRAVERSAL)
def test_names_that_are_paths_are_refused(start: Start, repository: Any, name: str) -> None:
    from urllib.parse import quote

    running = start(repository / "mlp", control="explicit")
    for path in (f"models/{name}/infer", f"repository/models/{name}/load", f"repository/models/{name}/unload"):
        reply = ask(running, "POST", f"/v2/{quote(path, safe='/%')}", {})
        assert reply.status in (400, 404, 405), (path, reply)
    assert ask(running, "GET", "/v2/models/mlp/ready").status == 200


def test_control_is_off_unless_it_is_asked_for(server: Server) -> None:
    for verb in ("load", "unload", "rollback"):
        reply = ask(server, "POST", f"/v2/repository/models/mlp/{verb}")
        assert reply.status == 403 and "--control" in reply.error
    assert ask(server, "GET", "/v2/models/mlp/ready").status == 200


def test_the_token(start: Start, repository: Any) -> None:
    running = start(repository / "mlp", token=TOKEN, control="explicit")
    path = "/v2/repository/models/mlp/load"
    for headers in (
        {},
        {"Authorization": "Bearer wrong-wrong"},
        {"Authorization": TOKEN},
        {"Authorization": "Basic x"},
    ):
        reply = ask(running, "POST", path, {}, headers)
        assert reply.status == 401 and TOKEN not in reply.error
    assert ask(running, "POST", path, {}, {"Authorization": f"Bearer {TOKEN}"}).status == 200
    assert ask(running, "POST", INFER, vector()).status == 200
    guarded = start(repository / "mlp", token=TOKEN, protect="all")
    assert ask(guarded, "POST", INFER, vector()).status == 401
    assert ask(guarded, "GET", "/v2/models/mlp").status == 401
    assert ask(guarded, "GET", "/v2/health/ready").status == 200
    assert ask(guarded, "POST", INFER, vector(), {"Authorization": f"Bearer {TOKEN}"}).status == 200


def test_models_do_not_come_by_request(start: Start, repository: Any) -> None:
    running = start(repository / "mlp", control="explicit")
    body = {"parameters": {"file:1/model.onnx": "AAAA", "config": "{}"}}
    reply = ask(running, "POST", "/v2/repository/models/mlp/load", body)
    assert reply.status == 400 and "file:1/model.onnx" in reply.error


@pytest.mark.parametrize(
    "given",
    [
        {"control": "explicit", "host": "0.0.0.0"},
        {"token": "short"},
        {"protect": "all"},
        {"control": "always"},
        {"http_port": None, "grpc_port": None},
        {"max_request": 0},
    ],
)
def test_settings_that_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        Settings(**given)


def test_sizes(start: Start, repository: Any) -> None:
    running = start(repository / "mlp", max_request=4096)
    assert ask(running, "POST", INFER, vector()).status == 200
    # Of a body that comes in pieces nobody says the length.
    for body in (b"x" * 6000, iter([b"x" * 1000] * 6), b"x" * 8_000_000, iter([b"x" * 50_000] * 160)):
        # The client reads when it has sent everything.
        reply = ask(running, "POST", INFER, body)
        assert reply.status == 413 and "4096" in reply.error
    assert ask(running, "POST", INFER, vector()).status == 200


def test_what_is_left_of_a_refused_body_is_read_for_a_while(server: Server) -> None:
    host, port = str(server.http).removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 40}\r\n\r\n{{".encode())
        begin = time.monotonic()
        replies = b""
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(4096):
                replies += more
        assert replies.startswith(b"HTTP/1.1 413 ") and replies.count(b"HTTP/1.1") == 1
        assert 0.3 < time.monotonic() - begin < 5


def test_compressed_bodies_are_refused(server: Server) -> None:
    assert ask(server, "POST", INFER, b"x", {"Content-Encoding": "gzip"}).status == 415


@pytest.mark.exclusive
def test_a_slow_client_is_sent_away_and_hinders_nobody(server: Server) -> None:
    host, port = str(server.http).removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(20)]
    for connection in slow:
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{{".encode())
    begin = time.monotonic()
    assert ask(server, "POST", INFER, vector()).status == 200
    assert time.monotonic() - begin < 0.4
    for connection in slow:
        connection.settimeout(10)
        assert b" 408 " in connection.recv(4096)
        connection.close()
    assert ask(server, "GET", "/metrics").body.find(b"neurenix_pending_bytes 0") > 0


def test_headers_that_are_slow_or_long(server: Server) -> None:
    host, port = str(server.http).removeprefix("http://").split(":")
    begin = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n".encode()
    for sent in (b"", b"POS", begin):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(sent)
            connection.settimeout(10)
            assert b" 408 " in connection.recv(4096)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(begin)
        connection.settimeout(10)
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(b"X-Fill: " + b"x" * 1000 + b"\r\n")
            assert b" 431 " in connection.recv(4096)
    # A connection that is used again has the time anew.
    again = http.client.HTTPConnection(host, int(port), timeout=10)
    for _ in range(3):
        again.request("POST", INFER, json.dumps(vector()))
        reply = again.getresponse()
        assert reply.status == 200 and reply.read()
        time.sleep(0.3)
    again.close()


def test_a_thousand_requests_of_rubbish(server: Server) -> None:
    """None of them ends the server, or is answered as if something of the server's had failed."""
    host, port = str(server.http).removeprefix("http://").split(":")
    dice = random.Random(7)
    good = json.dumps(vector()).encode()
    answered = 0
    for _ in range(1000):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(_rubbish(dice, good))
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(10)
            reply = connection.recv(100)
            answered += reply.startswith(b"HTTP/1.1 ")
            assert not reply.startswith(b"HTTP/1.1 500"), reply
    assert answered > 300
    assert ask(server, "POST", INFER, vector()).status == 200


def _rubbish(dice: random.Random, good: bytes) -> bytes:
    kind = dice.randrange(4)
    body = bytearray(good)
    for _ in range(dice.randrange(1, 12)):
        body[dice.randrange(len(body))] = dice.randrange(256) if kind else dice.choice(b'[]{},:0129-"eE.tfn')
    if kind == 1:
        del body[dice.randrange(len(body)) :]
    if kind == 2:
        return bytes(dice.randrange(256) for _ in range(dice.randrange(1, 300)))
    header = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    if kind == 3:
        header += f"{LENGTH}: {dice.randrange(-5, 400)}\r\n"
    return header.encode() + b"\r\n" + bytes(body)
