"""Queues and batches: what is put together, who comes first, and what becomes of those that nobody waits for."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from neurenix.serve import ServeOptions, Server
from tests.serve import models
from tests.serve.conftest import Start, ask, vector

INFER = "/v2/models/mlp/infer"


def served(server: Server, name: str = "mlp") -> Any:
    """The version of a model that answers."""
    assert server.core is not None
    return server.core.registry.find(name)


@contextmanager
def held(server: Server, name: str = "mlp") -> Iterator[list[int]]:
    """Keeps the model from ending its first execution until the block ends. Gives the rows of all executions."""
    batcher = served(server, name).batcher
    run, gate, rows = batcher._run, threading.Event(), []

    def wait(inputs: dict[str, Any]) -> Any:
        rows.append(len(next(iter(inputs.values()))))
        gate.wait(30)
        return run(inputs)

    batcher._run = wait
    try:
        yield rows
    finally:
        gate.set()


def until(condition: Any) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def slowed(server: Server, seconds: float) -> None:
    """Makes each execution of the model take that much longer."""
    batcher = served(server).batcher
    run = batcher._run

    def slow(inputs: dict[str, Any]) -> Any:
        time.sleep(seconds)
        return run(inputs)

    batcher._run = slow


def repeat(server: Server, clients: int, requests: int) -> None:
    """Clients that each send a request when the last one is answered, and look at the answers."""

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((1, 16)).astype(np.float32)
        body = json.dumps(vector() | {"inputs": [vector()["inputs"][0] | {"data": x[0].tolist()}]})
        connection = http.client.HTTPConnection(str(server.http).removeprefix("http://"), timeout=30)
        for _ in range(requests):
            connection.request("POST", INFER, body)
            reply = json.loads(connection.getresponse().read())
            np.testing.assert_allclose(reply["outputs"][0]["data"], models.mlp_reference(x)[0], rtol=1e-4, atol=1e-4)
        connection.close()

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))


@pytest.mark.parametrize(("seconds", "delay_us"), [(0.005, 0), (0.0, 20_000)])
def test_sixteen_clients_share_executions(start: Start, repository: Path, seconds: float, delay_us: int) -> None:
    server = start(f"mlp={with_delay(repository, delay_us)}")
    slowed(server, seconds)
    repeat(server, 16, 20)
    counts = served(server).statistics
    assert counts.inferences == 320
    assert counts.executions <= 320 / 4


def with_delay(repository: Path, microseconds: int) -> Path:
    """A folder of the model, with a config in which requests may wait that long for others."""
    folder = repository.parent / f"{repository.name}_delay_{microseconds}"
    if not folder.exists():
        folder.mkdir()
        (folder / "1").symlink_to(repository / "mlp" / "1")
    batching = f"dynamic_batching {{ max_queue_delay_microseconds: {microseconds} }}"
    (folder / "config.pbtxt").write_text(f"max_batch_size: 16\n{batching}\n")
    return folder


@pytest.mark.exclusive
def test_a_request_alone_does_not_wait(start: Start, repository: Path) -> None:
    server = start(f"mlp={with_delay(repository, 200_000)}")
    for _ in range(3):
        time.sleep(0.25)
        begin = time.monotonic()
        assert ask(server, "POST", INFER, vector()).status == 200
        assert time.monotonic() - begin < 0.19


def test_a_full_queue_is_told(start: Start, repository: Path) -> None:
    server = start(repository / "mlp", options=ServeOptions(device="cpu", max_queue=4))
    with ThreadPoolExecutor(5) as pool:
        with held(server):
            first = pool.submit(ask, server, "POST", INFER, vector())
            until(lambda: served(server).batcher.open == 1 and served(server).batcher.pending == 0)
            waiting = [pool.submit(ask, server, "POST", INFER, vector()) for _ in range(4)]
            until(lambda: served(server).batcher.pending == 4)
            reply = ask(server, "POST", INFER, vector())
            assert reply.status == 429 and int(reply.headers["retry-after"]) >= 1
            assert "4 requests" in reply.error
        assert [one.result().status for one in (first, *waiting)] == [200] * 5
    assert served(server).statistics.failures["REJECTED"].count == 1


def test_priorities(start: Start, repository: Path) -> None:
    server = start(repository / "mlp")
    batcher = served(server).batcher
    with ThreadPoolExecutor(8) as pool:
        with held(server) as rows:
            pool.submit(ask, server, "POST", INFER, vector())
            until(lambda: rows)
            done = []
            # No two of these fit into one execution.
            for count, (size, priority) in enumerate([(9, 9), (10, 0), (11, 1), (12, 9), (13, 2)], 1):
                body = vector(size) | {"parameters": {"priority": priority}}
                done.append(pool.submit(ask, server, "POST", INFER, body))
                until(lambda count=count: batcher.pending == count)
        assert [one.result().status for one in done] == [200] * 5
    assert rows == [1, 11, 13, 10, 9, 12]


@pytest.mark.exclusive
def test_deadlines(start: Start, repository: Path) -> None:
    server = start(repository / "mlp")
    with ThreadPoolExecutor(1) as pool:
        with held(server) as rows:
            first = pool.submit(ask, server, "POST", INFER, vector())
            until(lambda: rows)
            begin = time.monotonic()
            reply = ask(server, "POST", INFER, vector() | {"parameters": {"timeout": 50_000}})
            assert reply.status == 504 and "in the queue" in reply.error
            assert 0.04 < time.monotonic() - begin < 1
            assert served(server).batcher.pending == 0
        assert first.result().status == 200
    assert rows == [1]


def test_the_request_of_a_client_that_left_does_not_run(start: Start, repository: Path) -> None:
    server = start(repository / "mlp")
    batcher = served(server).batcher
    with ThreadPoolExecutor(1) as pool:
        with held(server) as rows:
            first = pool.submit(ask, server, "POST", INFER, vector())
            until(lambda: rows)
            gone = http.client.HTTPConnection(str(server.http).removeprefix("http://"))
            gone.request("POST", INFER, json.dumps(vector(5)))
            until(lambda: batcher.pending == 1)
            gone.close()
            until(lambda: batcher.pending == 0)
        assert first.result().status == 200
    assert ask(server, "POST", INFER, vector()).status == 200
    assert 5 not in rows and 5 not in served(server).statistics.batches
    assert served(server).statistics.failures["CANCELED"].count == 1


def test_an_error_meets_its_own_request_alone(start: Start, repository: Path) -> None:
    server = start(repository / "rows")

    def body(index: int) -> dict[str, Any]:
        return {"inputs": [{"name": "index", "shape": [1, 1], "datatype": "INT64", "data": [index]}]}

    path = "/v2/models/rows/infer"
    with ThreadPoolExecutor(6) as pool:
        with held(server, "rows") as rows:
            pool.submit(ask, server, "POST", path, body(0))
            until(lambda: rows)
            found = [pool.submit(ask, server, "POST", path, body(index)) for index in (1, 2, 99, 3)]
            until(lambda: served(server, "rows").batcher.pending == 4)
        replies = [one.result() for one in found]
    assert [reply.status for reply in replies] == [200, 200, 400, 200]
    for index, reply in zip((1, 2, None, 3), replies, strict=True):
        if index is not None:
            assert reply.json["outputs"][0]["data"] == [4.0 * index + column for column in range(4)]
    assert "99" in replies[2].error or "index" in replies[2].error


def test_requests_of_other_sizes_are_not_put_together(start: Start, repository: Path) -> None:
    server = start(repository / "text")

    def body(tokens: int) -> dict[str, Any]:
        return {"inputs": [{"name": "ids", "shape": [1, tokens], "datatype": "INT64", "data": [1] * tokens}]}

    with ThreadPoolExecutor(9) as pool:
        with held(server, "text") as rows:
            pool.submit(ask, server, "POST", "/v2/models/text/infer", body(1))
            until(lambda: rows)
            sizes = [3, 5, 3, 5, 3, 5, 3]
            found = [pool.submit(ask, server, "POST", "/v2/models/text/infer", body(size)) for size in sizes]
            until(lambda: served(server, "text").batcher.pending == len(sizes))
        assert [one.result().json["outputs"][0]["data"] for one in found] == [[size] for size in sizes]
    assert set(served(server, "text").statistics.batches) == {1, 3, 4}


def test_rows_that_depend_on_each_other_do_not_share_a_call(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "neurenix")
    onnx.save(models.mixing(), tmp_path / "mixing.onnx")
    server = start(tmp_path / "mixing.onnx")
    assert served(server, "mixing").spec.max_batch == 0
    assert "depends on the other rows" in caplog.text
    x = np.random.default_rng().standard_normal((3, 4)).astype(np.float32)
    body = {"inputs": [{"name": "input", "shape": [3, 4], "datatype": "FP32", "data": x.tolist()}]}
    reply = ask(server, "POST", "/v2/models/mixing/infer", body)
    wanted = np.exp(x) / np.exp(x).sum(0)
    np.testing.assert_allclose(np.array(reply.json["outputs"][0]["data"]).reshape(3, 4), wanted, rtol=1e-5)


def test_the_deadline_of_a_grpc_call(start: Start, repository: Path) -> None:
    import grpc

    from neurenix.serve import messages

    kinds = messages.load()
    server = start(repository / "mlp", grpc_port=0)
    request = kinds.ModelInferRequest(model_name="mlp", raw_input_contents=[bytes(64)])
    request.inputs.add(name="input", datatype="FP32", shape=[1, 16])
    with grpc.insecure_channel(str(server.grpc)) as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", kinds.ModelInferRequest.SerializeToString,
            kinds.ModelInferResponse.FromString,
        )  # fmt: skip
        with held(server) as rows:
            running = call.future(request)
            until(lambda: rows)
            with pytest.raises(grpc.RpcError) as caught:
                call(request, timeout=0.1)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            until(lambda: served(server).batcher.pending == 0)
            cancelled = call.future(request)
            until(lambda: served(server).batcher.pending == 1)
            cancelled.cancel()
            until(lambda: served(server).batcher.pending == 0)
        assert running.result().outputs[0].name == "output"
    assert rows == [1]


def test_rubbish_by_grpc(start: Start, repository: Path) -> None:
    import random

    import grpc

    from neurenix.serve import messages

    kinds = messages.load()
    server = start(repository / "mlp", grpc_port=0, max_request=1 << 16)
    request = kinds.ModelInferRequest(model_name="mlp", raw_input_contents=[bytes(64)])
    request.inputs.add(name="input", datatype="FP32", shape=[1, 16])
    good, dice = request.SerializeToString(), random.Random(3)
    codes = set()
    with grpc.insecure_channel(str(server.grpc)) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(300):
            data = bytearray(good)
            for _ in range(dice.randrange(1, 5)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            try:
                call(bytes(data), timeout=10)
            except grpc.RpcError as error:
                codes.add(error.code())
        with pytest.raises(grpc.RpcError) as caught:
            call(bytes(1 << 17), timeout=10)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert call(good, timeout=10)
    assert grpc.StatusCode.INVALID_ARGUMENT in codes
    assert codes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
