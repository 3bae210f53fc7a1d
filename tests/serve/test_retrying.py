"""The client that asks again: nothing is lost while servers come and go."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix.errors import DeviceError, DTypeError, InvalidArgumentError
from neurenix.serve import Client, ServeOptions
from tests.serve import models
from tests.serve.conftest import TOKEN, Start
from tests.serve.test_batching import slowed


def test_arrays_go_and_come(start: Start, repository: Path) -> None:
    server = start(repository, token=TOKEN, protect="all")
    client = Client(str(server.http), token=TOKEN)
    x = np.random.default_rng().standard_normal((3, 16)).astype(np.float32)
    found = client.infer("mlp", {"input": x}, version="1")["output"]
    np.testing.assert_allclose(found, models.mlp_reference(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(InvalidArgumentError, match="16"):
        client.infer("mlp", {"input": x[:, :3]})
    with pytest.raises(InvalidArgumentError, match="no such model"):
        client.infer("none", {"input": x})
    with pytest.raises(DTypeError, match="complex"):
        client.infer("mlp", {"input": x.astype(np.complex64)})
    with pytest.raises(InvalidArgumentError, match="token"):
        Client(str(server.http)).infer("mlp", {"input": x})
    assert client.retries == 0


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "grpc://127.0.0.1", "http://[::1", "http://h:x", "http://h:70000"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no address"):
        Client(url)


def test_a_full_queue_is_waited_for(start: Start, repository: Path) -> None:
    server = start(repository / "mlp", options=ServeOptions(device="cpu", max_queue=1, max_batch=1))
    slowed(server, 0.02)
    client = Client(str(server.http), timeout_s=30)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                client.infer("mlp", {"input": np.ones((1, 16), np.float32)})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and client.retries > 0


def test_nobody_there(free_port: int) -> None:
    begin = time.monotonic()
    with pytest.raises(DeviceError, match="no answer"):
        Client(f"http://127.0.0.1:{free_port}", timeout_s=0.5).infer("mlp", {"input": np.ones((1, 16), np.float32)})
    assert time.monotonic() - begin < 2


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def test_a_server_that_is_killed_and_comes_back(repository: Path, free_port: int) -> None:
    """kill -9 in the middle of requests: all of them are answered in the end, and rightly."""

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "neurenix.cli", "serve", str(repository / "mlp"), "--device", "cpu"]
        command += ["--http-port", str(free_port), "--grpc-port", "-1"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "NEURENIX_LOG": "info"}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        assert any(re.search("serving .* at http", line) for line in process.stderr)
        return process

    client = Client(f"http://127.0.0.1:{free_port}", timeout_s=60)
    answered, wrong = [0], []
    ended = threading.Event()

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((1, 16)).astype(np.float32)
        wanted = models.mlp_reference(x)
        while not ended.is_set():
            try:
                found: Any = client.infer("mlp", {"input": x})["output"]
            except BaseException as error:
                wrong.append(error)
                return
            if not np.allclose(found, wanted, rtol=1e-3, atol=1e-3):
                wrong.append(found)
            answered[0] += 1

    process = begin()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(2):
            time.sleep(0.3)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            process = begin()
        time.sleep(0.3)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        process.kill()
        process.communicate()
    assert not wrong and client.retries > 0 and answered[0] > 100
