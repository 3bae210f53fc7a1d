"""A toy model in Triton with our backend: the latency of one client, and 16 threads at once.

python -m benchmarks.bench_triton --environment FOLDER --backends FOLDER   (as tools/triton.py makes them)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import measure
from tests.triton import repository
from tests.triton.server import Server

#: Runs in Triton's environment: prints the median in ms of one client, and requests a second of 16 threads.
CLIENT = """
import json, statistics, sys, threading, time
import numpy as np
import tritonclient.grpc, tritonclient.http
protocol, url = sys.argv[1:]
module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
x = np.random.default_rng().standard_normal((1, 16)).astype(np.float32)
def prepared():
    given = module.InferInput("x", x.shape, "FP32")
    given.set_data_from_numpy(x)
    return module.InferenceServerClient(url), [given]
def work(seconds, times):
    client, given = prepared()
    until = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        client.infer("toy", given)
        times.append(time.perf_counter() - begun)
work(1, [])
alone = []
work(3, alone)
lists = [[] for _ in range(16)]
threads = [threading.Thread(target=work, args=(5, one)) for one in lists]
begun = time.perf_counter()
for thread in threads: thread.start()
for thread in threads: thread.join()
took = time.perf_counter() - begun
together = sum(map(len, lists))
print(json.dumps({
    "median_ms": 1e3 * statistics.median(alone), "requests_per_second": together / took,
    "median_ms_of_16": 1e3 * statistics.median(t for one in lists for t in one),
}))
"""


def main() -> None:
    """Measures, and writes `results/triton.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, required=True)
    parser.add_argument("--backends", type=Path, required=True)
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(prefix="neurenix-triton-") as folder:
        models = Path(folder) / "models"
        repository.engine(repository.models.perceptron(), repository.TOY, models / "toy" / "1" / "model.engine")
        repository.configure(models / "toy")
        server = Server(arguments.environment, arguments.backends, models, Path(folder) / "log")
        try:
            for protocol, url in (("http", server.http), ("grpc", server.grpc)):
                command = [str(arguments.environment / "bin/python"), "-c", CLIENT, protocol, url]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(done.stderr)
                found[protocol] = json.loads(done.stdout)
            found["server_mb"] = server.resident() // 1024
        finally:
            server.stop()
    print(json.dumps(found, indent=2))
    settings = {
        "server": "Triton 2.51 of nvidia-pytriton 0.7.0",
        "client": "tritonclient in Python, on the same machine",
    }
    print(measure.write("triton", found, settings))


if __name__ == "__main__":
    main()
