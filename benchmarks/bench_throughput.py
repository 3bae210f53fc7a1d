"""Requests a second through `AsyncQueue` with two jobs: what `hint` and `deterministic` change, in turns.

    python -m benchmarks.bench_throughput

Medians of the turns. Results go to benchmarks/results/throughput.json.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_models import export
from neurenix.hardware import AsyncQueue, OptimizedModel
from neurenix.hardware.tensorrt import TensorRTBackend

#: The models, and how many requests make a turn.
REQUESTS = {"resnet50": 60, "mobilenetv3": 400}
JOBS = 2
BUILDS: dict[str, dict[str, Any]] = {
    "latency": {},
    "throughput": {"hint": "throughput"},
    "deterministic": {"deterministic": True},
}


def rate(model: OptimizedModel, x: np.ndarray, requests: int) -> float:
    """Requests a second."""
    with AsyncQueue(model, JOBS) as queue:
        for _ in range(2 * JOBS):
            queue.start_async(x)
        queue.wait_all()
        start = time.perf_counter()
        for _ in range(requests):
            queue.start_async(x)
        queue.wait_all()
        return requests / (time.perf_counter() - start)


def main() -> None:
    """The command."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    results = {}
    for name, requests in REQUESTS.items():
        with tempfile.TemporaryDirectory() as folder:
            _, x, path = export(name, 1, Path(folder))
            backend = TensorRTBackend(threads=options.threads)
            models = {key: backend.optimize_model(path, {"input": x.shape}, **build) for key, build in BUILDS.items()}
            turns = [{key: rate(model, x, requests) for key, model in models.items()} for _ in range(options.turns)]
        results[name] = {key: round(statistics.median(turn[key] for turn in turns), 1) for key in models}
        print(f"{name:14} " + "  ".join(f"{key} {value:7.1f}" for key, value in results[name].items()), flush=True)
    measure.write("throughput", results, {"threads": options.threads, "jobs": JOBS, "turns": options.turns})


if __name__ == "__main__":
    main()
