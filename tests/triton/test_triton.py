"""Triton's own server with our backend, asked by its own client."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import native
from tests.capi import models
from tests.triton import repository
from tests.triton.server import Server

ROOT = native.ROOT
CLIENT = Path(__file__).parent / "client.py"
CHECKS = (
    "results",
    "versions",
    "configuration",
    "completion",
    "misuse",
    "batching",
    "strangers",
    "lifecycle",
    "cancelled",
)


@pytest.fixture(scope="module")
def environment() -> Path:
    """The environment with Triton."""
    folder = os.environ.get("NEURENIX_TRITON_ENV", "")
    if not folder:
        pytest.skip("NEURENIX_TRITON_ENV is no environment with Triton: `python tools/triton.py environment FOLDER`")
    return Path(folder)


@pytest.fixture(scope="module")
def backends(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The backend, built here."""
    folder = tmp_path_factory.mktemp("backends")
    package = native.package(tmp_path_factory.mktemp("package") / "neurenix")
    command = [sys.executable, str(ROOT / "tools/triton.py"), "backend", str(folder)]
    options = ["--environment", str(environment), "--package", str(package / "cmake")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the models are to give."""
    return tmp_path_factory.mktemp("expected")


@pytest.fixture(scope="module")
def server(
    environment: Path, backends: Path, expected: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server on the repository; SIGTERM ends it well."""
    folder = tmp_path_factory.mktemp("repository")
    repository.write(folder, expected)
    started = Server(environment, backends, folder, folder.parent / "triton.log")
    yield started
    assert started.stop() == 0, started.log.read_text()[-2000:]


def ask(server: Server, environment: Path, expected: Path, check: str, protocol: str) -> None:
    """Runs a check of the client."""
    command = [environment / "bin/python", CLIENT, check, protocol, server.http, server.grpc, expected]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + server.log.read_text()[-2000:]
    assert server.is_running()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("check", CHECKS)
def test_what_a_client_sees(server: Server, environment: Path, expected: Path, check: str, protocol: str) -> None:
    ask(server, environment, expected, check, protocol)


def test_random_requests_end_nothing(server: Server, environment: Path, expected: Path) -> None:
    ask(server, environment, expected, "fuzz", "http")


@pytest.mark.parametrize("model", repository.REFUSED)
def test_what_does_not_fit_is_refused_by_name(server: Server, model: str) -> None:
    assert repository.REFUSED[model][1] in server.refusal(model)


def test_broken_and_missing_files_say_what_to_do(server: Server) -> None:
    assert "the file ends before its weights do" in server.refusal("broken")
    assert "neurenix export" in server.refusal("onnx")
    assert "default_model_filename" in server.refusal("empty")


def test_parameters_that_change_nothing_are_told(server: Server) -> None:
    assert "the parameter providers is 'cuda, cpu': it changes nothing for instances" in server.log.read_text()


def test_a_server_that_puts_nothing_in_says_what_to_write(
    environment: Path, backends: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lacking")
    repository.write_lacking(folder)
    log = folder.parent / "lacking.log"
    server = Server(environment, backends, folder, log, flags=["--disable-auto-complete-config"])
    try:
        with urllib.request.urlopen(f"http://{server.http}/v2/models/explicit/ready", timeout=10) as answer:
            assert answer.status == 200
        for name, (_, words) in repository.LACKING.items():
            assert words in server.refusal(name), log.read_text()[-4000:]
    finally:
        server.stop()


def test_metrics_count_requests(server: Server) -> None:
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'nv_inference_request_success{model="toy",version="1"}' in text


def test_unloading_gives_memory_back(
    environment: Path, backends: Path, expected: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("large")
    model = models.perceptron()
    weights = {one.name: one for one in model.graph.initializer}
    wide = np.random.default_rng(0).standard_normal((16, 1 << 20)).astype(np.float32)
    weights["w"].CopyFrom(models.numpy_helper.from_array(wide, "w"))
    weights["b"].CopyFrom(models.numpy_helper.from_array(wide[0], "b"))
    weights["w2"].CopyFrom(models.numpy_helper.from_array(np.ascontiguousarray(wide[:4].T), "w2"))
    # Of one row: it is about the memory of weights.
    repository.engine(model, {"x": (1, 16)}, folder / "large" / "1" / "model.engine")
    repository.configure(folder / "large")
    server = Server(environment, backends, folder, folder.parent / "large.log")
    try:
        sizes = []
        for _ in range(6):
            for verb in ("unload", "load"):
                # Nor does it like an unload right behind a load: see client.py.
                time.sleep(0.5)
                url = f"http://{server.http}/v2/repository/models/large/{verb}"
                urllib.request.urlopen(urllib.request.Request(url, data=b"{}"), timeout=60).close()
                if verb == "unload":
                    time.sleep(0.2)
                    sizes.append(server.resident())
        loaded = server.resident()
    finally:
        server.stop()
    # The weights take 84 MB. The C library keeps memory for threads that load, 20 to 30 MB more in one unload than in
    # another; what five loads kept of the weights would be several times as much.
    assert loaded - sizes[-1] > 60_000 and sizes[-1] - sizes[0] < 60_000, (sizes, loaded)


@pytest.mark.exclusive
def test_a_run_ends_when_its_clients_leave_and_not_when_the_server_is_told_to_end(
    environment: Path, backends: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path_factory.mktemp("long")
    repository.engine(models.long_one(), None, folder / "long" / "1" / "model.engine")
    repository.configure(folder / "long", 'parameters { key: "warm_up" value { string_value: "off" } }\n')
    server = Server(environment, backends, folder, folder.parent / "long.log")
    request.addfinalizer(server.process.kill)
    ask(server, environment, folder, "ended", "grpc")
    statuses = []
    body = b'{"inputs":[{"name":"x","shape":[256,1024],"datatype":"FP32","parameters":{"binary_data_size":1048576}}]}'
    headers = {"Inference-Header-Content-Length": str(len(body))}

    def call() -> None:
        url = f"http://{server.http}/v2/models/long/infer"
        asked = urllib.request.Request(url, data=body + bytes(1 << 20), headers=headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            statuses.append((answer.status, len(answer.read()) > 1 << 20))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert server.stop() == 0
    for thread in threads:
        thread.join()
    assert statuses == [(200, True)] * 4


def test_the_suite_of_our_own_server(environment: Path, backends: Path, tmp_path: Path) -> None:
    """What holds of `neurenix serve` through Triton's client holds of Triton with our backend."""
    pytest.importorskip("tritonclient.grpc")
    repository.of_serve(tmp_path / "models")
    server = Server(environment, backends, tmp_path / "models", tmp_path / "triton.log")
    try:
        addresses = {"SERVE_TEST_HTTP": server.http, "SERVE_TEST_GRPC": server.grpc}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/serve/test_protocol.py"]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | addresses, capture_output=True, text=True, timeout=300
        )
    finally:
        server.stop()
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


def test_nothing_newer_than_the_api_of_23_10_is_used(backends: Path) -> None:
    command = ["nm", "-D", "--undefined-only", str(backends / "neurenix/libtriton_neurenix.so")]
    used = {line.split()[-1] for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()}
    newer = ("ResponseStatistics", "OutputByName", "ParallelModelInstanceLoading", "ResponseSetDoubleParameter")
    assert not [name for name in used if name.startswith("TRITON") and any(word in name for word in newer)]


@pytest.mark.skipif(importlib.util.find_spec("tritonclient") is not None, reason="it is here")
def test_triton_is_no_dependency() -> None:
    assert importlib.util.find_spec("pytriton") is None
