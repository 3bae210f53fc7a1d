"""Several GPUs of one host at once: an engine file of ResNet-50 b32 on each, a thread each, beside one GPU alone.

    python -m benchmarks.bench_gpus

Images a second of calls one after another on arrays of each GPU. Results go to benchmarks/results/gpus.json.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import neurenix as nx
from benchmarks import measure
from benchmarks.accuracy_cuda import exported
from benchmarks.bench_cuda import entry_of

BATCH = 32
CALLS = 2000


class Lane:
    """The engine on one GPU, and an input there."""

    def __init__(self, path: Path, gpu: int) -> None:
        import torch

        self.gpu = gpu
        self.model = nx.hardware.get_backend("cuda", device=gpu, fallback=False).load(path)
        self.x = torch.randn(BATCH, 3, 224, 224, device=f"cuda:{gpu}", dtype=torch.float16)
        self.rate = 0.0

    def work(self, calls: int, start: threading.Barrier) -> None:
        """Makes the calls once everybody is ready, and measures their rate."""
        import torch

        torch.cuda.set_device(self.gpu)
        for _ in range(10):
            self.model(self.x)
        torch.cuda.synchronize(self.gpu)
        start.wait()
        begun = time.perf_counter()
        for _ in range(calls):
            self.model(self.x)
        torch.cuda.synchronize(self.gpu)
        self.rate = BATCH * calls / (time.perf_counter() - begun)


def rates(lanes: list[Lane]) -> list[float]:
    """Images a second of each of the lanes, all at once."""
    start = threading.Barrier(len(lanes))
    threads = [threading.Thread(target=lane.work, args=(CALLS, start)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [round(lane.rate) for lane in lanes]


def main() -> None:
    """The command."""
    import torch

    torch.manual_seed(0)
    entry = entry_of("resnet50")
    given = {"input": torch.randn(BATCH, 3, 224, 224)}
    model = exported(entry.build().eval(), given)
    backend = nx.hardware.get_backend("cuda", fallback=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.engine"
        backend.optimize_model(model, precision="fp16", io_dtype="fp16").save(path)
        lanes = [Lane(path, gpu) for gpu in range(torch.cuda.device_count())]
    found: dict[str, Any] = {"each_alone": [rates([lane])[0] for lane in lanes], "at_once": rates(lanes)}
    found["times_one"] = round(sum(found["at_once"]) / max(found["each_alone"]), 3)
    print(json.dumps(found))
    measure.write("gpus", found, {"batch": BATCH, "calls": CALLS, "device": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
