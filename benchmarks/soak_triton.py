"""A model in Triton that is updated under load: 200,000 requests, 20 updates, and the server's memory meanwhile.

    python -m benchmarks.soak_triton --environment FOLDER --backends FOLDER   (as tools/triton.py makes them)

Every answer is held against what a version gives that was served while it was on its way; a request that comes once an
update is acknowledged must have the new one. Nothing is sent twice, so whatever Triton drops would show. Writes
benchmarks/results/triton_soak.json; ends with 1 where an answer was wrong or lost, or the server ended.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from benchmarks import measure
from tests.triton import repository
from tests.triton.server import Server

CLIENTS = 16
HEADER = json.dumps(
    {
        "inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "parameters": {"binary_data_size": 64}}],
        "parameters": {"binary_data_output": True},
    }
).encode()


def versions(folder: Path, x: np.ndarray[Any, Any], count: int) -> list[np.ndarray[Any, Any]]:
    """Writes engines that differ in their last bias into `folder`/1, ...; gives what the reference makes of `x`."""
    wanted = []
    for version in range(1, count + 1):
        # Of different elements: one number for all would be part of the kernel, and oneDNN keeps each kernel.
        model = repository.with_bias(np.arange(4, dtype=np.float32) + version)
        repository.engine(model, repository.TOY, folder / str(version) / "model.engine")
        wanted.append(ReferenceEvaluator(model).run(None, {"x": x})[0][0])
    return wanted


@dataclass
class Load:
    """What the clients share: the version that is served, the one that is being loaded, and what was seen."""

    url: str
    x: np.ndarray[Any, Any]
    wanted: list[np.ndarray[Any, Any]]
    requests: int
    acknowledged: int = 1
    begun: int = 1
    numbers: Any = field(default_factory=itertools.count)
    answered: list[int] = field(default_factory=lambda: [0] * CLIENTS)
    failures: list[str] = field(default_factory=list)

    def client(self, number: int) -> None:
        """Asks until all requests are asked."""
        connection = http.client.HTTPConnection(self.url, timeout=60)
        headers = {"Inference-Header-Content-Length": str(len(HEADER))}
        while next(self.numbers) < self.requests:
            least = self.acknowledged
            connection.request("POST", "/v2/models/toy/infer", HEADER + self.x.tobytes(), headers)
            reply = connection.getresponse()
            body = reply.read()
            if reply.status != 200:
                self.failures.append(f"version {least}: {reply.status} {body[:200]!r}")
                continue
            self.check(reply, body, least)
            self.answered[number] += 1

    def check(self, reply: Any, body: bytes, least: int) -> None:
        """An answer is that of a version which was served while the request was on its way."""
        length = int(reply.headers["Inference-Header-Content-Length"])
        version = int(json.loads(body[:length])["model_version"])
        given = np.frombuffer(body[length:], np.float32)
        if not least <= version <= self.begun:
            self.failures.append(f"version {version} answered where {least} to {self.begun} were served")
        elif not np.allclose(given, self.wanted[version - 1], rtol=1e-5, atol=1e-5):
            self.failures.append(f"version {version} answered {given}")


def soaked(server: Server, load: Load, update: Callable[[int], None]) -> list[int]:
    """Runs the clients, and updates the model whenever another share of the requests was answered.

    Gives the server's memory in kB before each update and at the end.
    """

    def guarded(number: int) -> None:
        try:
            load.client(number)
        except Exception as error:  # A client that ends early is what this looks for.
            load.failures.append(f"client {number}: {error!r}")

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    sizes = []
    share = load.requests // len(load.wanted)
    for version in range(2, len(load.wanted) + 1):
        while sum(load.answered) < share * (version - 1) and any(thread.is_alive() for thread in threads):
            time.sleep(0.02)
        sizes.append(server.resident())
        load.begun = version
        update(version)
        load.acknowledged = version
    for thread in threads:
        thread.join()
    return [*sizes, server.resident()]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, required=True)
    parser.add_argument("--backends", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--updates", type=int, default=20)
    options = parser.parse_args()
    x = np.random.default_rng().standard_normal((1, 16)).astype(np.float32)
    with tempfile.TemporaryDirectory(prefix="neurenix-triton-") as name:
        held, served = Path(name) / "held", Path(name) / "models"
        wanted = versions(held, x, options.updates + 1)
        (served / "toy").mkdir(parents=True)
        repository.configure(served / "toy")
        shutil.move(held / "1", served / "toy")
        server = Server(options.environment, options.backends, served, Path(name) / "log")

        def update(version: int) -> None:
            shutil.move(held / str(version), served / "toy")
            url = f"http://{server.http}/v2/repository/models/toy/load"
            urllib.request.urlopen(urllib.request.Request(url, data=b"{}"), timeout=60).close()

        load = Load(server.http, x, wanted, options.requests)
        begun = time.perf_counter()
        try:
            sizes = soaked(server, load, update)
            took = time.perf_counter() - begun
            running = server.is_running()
        finally:
            status = server.stop()
    answered = sum(load.answered)
    results = {
        "answered": answered,
        "failures": load.failures[:10],
        "requests_per_second": round(answered / took),
        "resident_mb": [round(size / 1024, 1) for size in sizes],
        "running": running,
        "exit_status": status,
    }
    print(json.dumps(results, indent=1))
    print(measure.write("triton_soak", results, {"clients": CLIENTS, "updates": options.updates}))
    if load.failures or not running or answered != options.requests:
        sys.exit(1)


if __name__ == "__main__":
    main()
