"""Models on Ray Serve. Ray has an environment of its own: `pip install "ray[serve]>=2.40"`, and this file alone."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray: Any = pytest.importorskip("ray")
serve: Any = pytest.importorskip("ray.serve")

from neurenix.errors import InvalidArgumentError  # noqa: E402
from neurenix.serve import Client  # noqa: E402
from neurenix.serve.ray import application, build  # noqa: E402
from tests.serve import models  # noqa: E402

PORT = 18765


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on this machine alone."""
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", object_store_memory=100 << 20)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    yield
    serve.shutdown()
    ray.shutdown()


def check(client: Client, seed: int = 0, model: str = "mlp") -> None:
    """One request, compared with float64."""
    x = np.random.default_rng(seed).standard_normal((1, 16)).astype(np.float32)
    found = client.infer(model, {"input": x})["output"]
    np.testing.assert_allclose(found, models.mlp_reference(x), rtol=1e-3, atol=1e-3)


def test_replicas_that_are_killed_lose_nothing(cluster: None, repository: Path) -> None:
    handle = serve.run(application(str(repository / "mlp"), replicas=2, cpus=0.5))
    client = Client(f"http://127.0.0.1:{PORT}", timeout_s=60)
    check(client)
    with pytest.raises(InvalidArgumentError, match="15"):
        client.infer("mlp", {"input": np.zeros((1, 15), np.float32)})
    outputs = handle.infer.remote({"input": np.ones((2, 16), np.float32)}).result()
    np.testing.assert_allclose(outputs["output"], models.mlp_reference(np.ones((2, 16))), rtol=1e-3, atol=1e-3)
    wrong: list[BaseException] = []
    answered = [0] * 4

    def work(number: int) -> None:
        try:
            for seed in range(150):
                check(client, seed)
                answered[number] += 1
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    os.kill(replica(), signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert not wrong and answered == [150] * 4


def replica() -> int:
    """The process of a replica, by its name: what lists actors needs Ray's dashboard."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().startswith(b"ray::ServeReplica:default:neurenix"):
                return int(path.parent.name)
    raise AssertionError("there is no replica")


def test_models_come_and_go(cluster: None, repository: Path) -> None:
    serve.run(application(str(repository), resident=2, cpus=0.5, name="several"))
    client = Client(f"http://127.0.0.1:{PORT}", timeout_s=60)
    for _ in range(2):
        check(client)
        x = np.ones((2, 3), np.float32)
        assert client.infer("fixed", {"input": x})["output"].tolist() == (x + x).tolist()
        assert client.infer("rows", {"index": np.array([[3]])})["row"].ravel().tolist() == [12, 13, 14, 15]
    with pytest.raises(InvalidArgumentError, match="no such model"):
        client.infer("other", {"input": x})


def test_the_number_of_replicas_follows_the_load(cluster: None, repository: Path) -> None:
    arguments = {"models": str(repository / "mlp"), "replicas": [1, 2], "target_ongoing_requests": 1, "cpus": 0.5}
    with pytest.raises(InvalidArgumentError, match="colour"):
        build({**arguments, "colour": "red"})
    serve.run(build(arguments))
    ended = threading.Event()

    def work() -> None:
        client = Client(f"http://127.0.0.1:{PORT}", timeout_s=60)
        while not ended.is_set():
            check(client)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        end = time.monotonic() + 90
        while running() < 2:
            assert time.monotonic() < end, "there is one replica still"
            time.sleep(0.5)
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def running() -> int:
    """How many replicas run."""
    (application_state,) = serve.status().applications.values()
    (deployment,) = application_state.deployments.values()
    return int(deployment.replica_states.get("RUNNING", 0))
