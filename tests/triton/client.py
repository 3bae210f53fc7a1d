"""What a client sees, by tritonclient: `client.py CHECK PROTOCOL HTTP GRPC FOLDER`, in Triton's environment.

Any server of the Open Inference Protocol with these models passes the checks that ask for no more than that.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

#: Triton 2.51 may end in an unload that comes while a thread of its own still puts away what it loaded or ran last
#: (TritonBackendThread::StopBackendThread reads a queue that is empty for a moment).
SETTLED = 0.2


class Caller:
    """A client of one protocol, and the values that models are to give."""

    def __init__(self, protocol: str, http_url: str, grpc_url: str, folder: Path) -> None:
        self.http_url, self.folder = http_url, folder
        self.is_http = protocol == "http"
        self.module: Any = tritonclient.http if self.is_http else tritonclient.grpc
        self.url = http_url if self.is_http else grpc_url
        self.client = self.connect()

    def connect(self) -> Any:
        """A client of one's own."""
        return self.module.InferenceServerClient(self.url)

    def inputs(self, arrays: dict[str, Any], binary: bool = True) -> list[Any]:
        """Arrays as the protocol has them."""
        made = []
        for name, array in arrays.items():
            # A model's scalar is one element for Triton.
            array = np.atleast_1d(array)
            one = self.module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
            one.set_data_from_numpy(array, **({"binary_data": binary} if self.is_http else {}))
            made.append(one)
        return made

    def infer(self, model: str, arrays: dict[str, Any], client: Any = None, **options: Any) -> Any:
        """A request."""
        binary = options.pop("binary", True)
        return (client or self.client).infer(model, self.inputs(arrays, binary), **options)

    def case(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs, and the reference's outputs."""
        with np.load(self.folder / f"{name}.npz") as held:
            return tuple(
                {key.partition(".")[2]: held[key] for key in held if key.startswith(side)} for side in ("in.", "out.")
            )  # type: ignore[return-value]

    def compare(self, result: Any, wanted: dict[str, Any]) -> None:
        """Holds a result against the reference."""
        for name, array in wanted.items():
            got = result.as_numpy(name)
            assert got.dtype == array.dtype and got.shape == np.atleast_1d(array).shape, (name, got.dtype, got.shape)
            loose = 1e-2 if array.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(got.astype(float), array.astype(float), rtol=loose, atol=loose)

    def counts(self, model: str) -> tuple[int, int]:
        """Requests and executions so far."""
        found = self.client.get_inference_statistics(model)
        if not self.is_http:
            one = found.model_stats[0]
            return one.inference_stats.success.count, one.execution_count
        stats = found["model_stats"][0]
        return int(stats["inference_stats"]["success"]["count"]), int(stats["execution_count"])


def refused(call: Callable[[], Any], *words: str) -> None:
    """Something that must fail, with a text."""
    try:
        call()
    except InferenceServerException as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"not refused: {words}")


def results(caller: Caller) -> None:
    """Every model gives what its reference gives."""
    assert caller.client.is_server_live() and caller.client.is_server_ready()
    for name in ("toy", "explicit", "named", "padded", "half", "mixture", "of_data"):
        inputs, wanted = caller.case(name)
        assert caller.client.is_model_ready(name), name
        caller.compare(caller.infer(name, inputs), wanted)
        if caller.is_http and name != "half":
            caller.compare(caller.infer(name, inputs, binary=False), wanted)


def versions(caller: Caller) -> None:
    """The newest version answers, or the one that is asked for."""
    for version in ("1", "2", ""):
        inputs, wanted = caller.case(f"versions.{version or 2}")
        caller.compare(caller.infer("versions", inputs, model_version=version), wanted)
    refused(lambda: caller.infer("versions", caller.case("versions.1")[0], model_version="9"))


def configuration(caller: Caller) -> None:
    """What the configuration of an engine says where nobody wrote one."""
    options = {} if caller.is_http else {"as_json": True}
    config = caller.client.get_model_config("toy", **options)
    config = config.get("config", config)
    assert int(config["max_batch_size"]) == 16 and config["input"][0]["name"] == "x"
    assert [int(dim) for dim in config["input"][0]["dims"]] == [16]
    assert [int(size) for size in config["dynamic_batching"]["preferred_batch_size"]] == [16]
    assert config["instance_group"][0]["kind"] == "KIND_CPU"
    metadata = caller.client.get_model_metadata("mixture", **options)
    shapes = {one["name"]: [int(dim) for dim in one["shape"]] for one in metadata["inputs"]}
    assert shapes == {"ids": [-1], "mask": [-1, 1], "scale": [1]}


def completion(caller: Caller) -> None:
    """What is put in beside the part that somebody wrote, which stays."""
    inputs, wanted = caller.case("named")
    for name, most in (("only_rows", 4), ("only_input", 4), ("only_output", 4), ("whole_input", 0)):
        options = {} if caller.is_http else {"as_json": True}
        config = caller.client.get_model_config(name, **options)
        config = config.get("config", config)
        assert int(config.get("max_batch_size", 0)) == most, config
        assert ("dynamic_batching" in config) == (most > 0), config
        assert [one["name"] for side in ("input", "output") for one in config[side]] == ["x", "y"], config
        dims = [int(dim) for dim in config["output"][0]["dims"]]
        assert dims == ([4] if most else [-1, 4]), config
        row = (2, 8) if name == "only_input" else (16,)
        caller.compare(caller.infer(name, {"x": inputs["x"].reshape(3, *row)}), wanted)
        if most:
            five = np.zeros((5, *row), np.float32)
            refused(lambda name=name, five=five: caller.infer(name, {"x": five}), "must be <= 4")


def strangers(caller: Caller) -> None:
    """A request that the engine refuses fails alone: those that came into its batch get their rows."""
    # Where clients get no turn because the machine is busy, they do not meet; what they get is right each time.
    executions = []
    for _ in range(5):
        executions.append(beside_a_wrong_one(caller))
        if executions[-1] == 7:
            return
    raise AssertionError(f"8 requests were no batch of 8: {executions} executions")


def beside_a_wrong_one(caller: Caller) -> int:
    """How many executions went well of 8 requests at once, one of them wrong: 7 where they were one batch."""
    start = threading.Barrier(8)

    def work(row: int) -> None:
        client = caller.connect()
        start.wait(timeout=30)
        if row == 3:
            refused(lambda: caller.infer("table", {"index": np.asarray([[99]])}, client), "out of range", "99")
            return
        got = caller.infer("table", {"index": np.asarray([[row]])}, client)
        caller.compare(got, {"row": np.arange(4, dtype=np.float32).reshape(1, 1, 4) + 4 * row})

    requests, executions = counted(caller, "table", work, 8)
    assert requests == 7
    return executions


def counted(caller: Caller, model: str, work: Callable[[int], None], threads: int) -> tuple[int, int]:
    """Requests and executions of a model while so many threads do something, each by its number."""
    before = settled(caller, model)
    errors: queue.Queue[BaseException] = queue.Queue()

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.put(error)

    running = [threading.Thread(target=guarded, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert errors.empty(), errors.get()
    requests, executions = (after - old for after, old in zip(settled(caller, model), before, strict=True))
    return requests, executions


def settled(caller: Caller, model: str) -> tuple[int, int]:
    """Requests and executions so far, when nothing comes any more: a backend reports a request behind its response."""
    known, found = None, caller.counts(model)
    while found != known:
        time.sleep(0.05)
        known, found = found, caller.counts(model)
    return found


def misuse(caller: Caller) -> None:
    """Requests that do not fit are refused, and the next one is answered."""
    x = np.zeros((2, 16), np.float32)
    refused(lambda: caller.infer("toy", {"x": x.astype(np.float64)}), "FP64")
    refused(lambda: caller.infer("toy", {"y": x}))
    refused(lambda: caller.infer("toy", {"x": x[:, :5]}))
    refused(lambda: caller.infer("toy", {"x": np.zeros((17, 16), np.float32)}), "16")
    refused(lambda: caller.infer("toy", {"x": x}, outputs=[caller.module.InferRequestedOutput("z")]), "z")
    refused(lambda: caller.infer("mixture", {"ids": np.full(3, 99), "mask": np.ones((3, 1), bool), "scale": x[0, :1]}))
    refused(lambda: caller.infer("../toy", {"x": x}))
    refused(lambda: caller.client.load_model("../../etc"))
    inputs, wanted = caller.case("toy")
    caller.compare(caller.infer("toy", inputs), wanted)


def batching(caller: Caller) -> None:
    """16 clients at once: few executions, and every client gets its own rows."""
    # Where clients get no turn because the machine is busy, they do not meet: what counts is that they can.
    counts = []
    for _ in range(3):
        counts.append(together(caller))
        if 4 * counts[-1] <= 320:
            return
    raise AssertionError(f"320 requests ran in {counts} executions")


def together(caller: Caller) -> int:
    """How many executions 320 requests of 16 threads take."""
    inputs, wanted = caller.case("explicit")

    def work(number: int) -> None:
        row, client = number % 3, caller.connect()
        for _ in range(20):
            result = caller.infer("explicit", {"x": inputs["x"][row : row + 1]}, client)
            caller.compare(result, {"y": wanted["y"][row : row + 1]})

    requests, executions = counted(caller, "explicit", work, 16)
    assert requests == 320
    return executions


def lifecycle(caller: Caller) -> None:
    """Load and unload, while others answer."""
    inputs, wanted = caller.case("named")
    for _ in range(5):
        time.sleep(SETTLED)
        caller.client.unload_model("named")
        refused(lambda: caller.infer("named", inputs))
        caller.compare(caller.infer("toy", caller.case("toy")[0]), caller.case("toy")[1])
        caller.client.load_model("named")
        caller.compare(caller.infer("named", inputs), wanted)


def cancelled(caller: Caller) -> None:
    """Clients that go away, and requests with a deadline that is over, leave the server as it was."""
    inputs, wanted = caller.case("toy")
    if not caller.is_http:
        answers: queue.Queue[Any] = queue.Queue()
        contexts = []
        for _ in range(50):
            take = lambda result, error: answers.put(error)  # noqa: E731
            contexts.append(caller.client.async_infer("explicit", caller.inputs({"x": inputs["x"][:1]}), take))
        for context in contexts[::2]:
            context.cancel()
        errors = [answers.get(timeout=30) for _ in contexts]
        assert sum(error is None for error in errors) >= 25
    host, port = caller.http_url.split(":")
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0] * 16}]}).encode()
    for cut in range(0, len(body), 7):
        with socket.create_connection((host, int(port))) as gone:
            head = f"POST /v2/models/toy/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            gone.sendall(head.encode() + body[:cut])
    caller.compare(caller.infer("toy", inputs), wanted)


def ended(caller: Caller) -> None:
    """A run that nobody waits for any more ends, and makes room for the next one."""
    # The share of a run that a request behind a cancelled one takes; another program's turn may lengthen one of them.
    shares = []
    for _ in range(5):
        shares.append(share_behind_a_cancelled_run(caller))
        if shares[-1] < 1.5:
            return
    raise AssertionError(f"requests behind a cancelled run took {shares} of the time of one alone")


def share_behind_a_cancelled_run(caller: Caller) -> float:
    """What a request takes that was sent when a tenth of a cancelled one had run, as a share of one alone."""
    given = caller.inputs({"x": np.zeros((256, 1024), np.float32)})
    caller.client.infer("long", given)
    begun = time.perf_counter()
    caller.client.infer("long", given)
    whole = time.perf_counter() - begun
    context = caller.client.async_infer("long", given, lambda result, error: None)
    time.sleep(0.1 * whole)
    context.cancel()
    begun = time.perf_counter()
    caller.client.infer("long", given)
    return (time.perf_counter() - begun) / whole


def fuzz(caller: Caller, count: int = 300) -> None:
    """Random requests by HTTP: each is answered or refused, and the next right one is answered."""
    rng = random.Random()
    valid = {"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.5] * 16}]}
    # A shape of terabytes ends Triton 2.51 itself before a backend is asked, so there is none among these.
    values: list[Any] = [
        None,
        -1,
        2**63,
        [],
        [[]],
        {},
        "",
        "x" * 999,
        1e400,
        True,
        [0] * 16,
        "FP16",
        "BYTES",
        [-1, 16],
        [1, 4096],
    ]
    connection = http.client.HTTPConnection(caller.http_url, timeout=30)
    statuses = []
    for _ in range(count):
        request = json.loads(json.dumps(valid))
        place = rng.choice([request, request["inputs"][0], request["inputs"][0]])
        place[rng.choice([*place, "outputs", "parameters", "id"])] = rng.choice(values)
        text = bytearray(json.dumps(request).encode())
        if rng.random() < 0.3:
            text[rng.randrange(len(text))] = rng.randrange(256)
        headers = (
            {"Inference-Header-Content-Length": str(rng.choice([-1, 5, len(text), 10**9]))}
            if rng.random() < 0.3
            else {}
        )
        with contextlib.suppress(http.client.HTTPException, ConnectionError):
            model = rng.choice(["toy", "mixture", "padded", "of_data"])
            connection.request("POST", f"/v2/models/{model}/infer", bytes(text), headers)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
            continue
        connection.close()
    assert len(statuses) > 0.8 * count and set(statuses) - {200}
    inputs, wanted = caller.case("toy")
    caller.compare(caller.infer("toy", inputs), wanted)


CHECKS = (results, versions, configuration, completion, misuse, batching, strangers, lifecycle, cancelled, ended, fuzz)


def main() -> None:
    """Runs a check."""
    name, protocol, http_url, grpc_url, folder = sys.argv[1:]
    caller = Caller(protocol, http_url, grpc_url, Path(folder))
    next(check for check in CHECKS if check.__name__ == name)(caller)


if __name__ == "__main__":
    main()
