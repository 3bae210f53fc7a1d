"""How fast calibration is beside inference in float32, and how much memory the engine in 8 bits takes beside PyTorch.

    python -m benchmarks.bench_calibration --device cuda --model resnet50 --batch 32

`rate`: batches a second that `optimize_model(precision="int8", calibration=...)` reads, from the third on, over the
calls of the float32 engine a second, numpy in and numpy out, on random normal numbers. `memory`: the bytes of weights,
activations and workspaces of the engine in 8 bits, over the peak of PyTorch's eager float32 (on a GPU its allocator's,
on a processor the growth of a fresh process behind its imports). Each model has a process of its own; rows join those
in benchmarks/results/calibration.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_cuda import entry_of

#: Batches that are read before the time counts: those in flight, and the first calls of kernels.
WARM = 2

EAGER = """
import sys
from pathlib import Path
import torch
from benchmarks.bench_cuda import entry_of
from benchmarks.bench_calibration import random
name, batch, device = sys.argv[1], int(sys.argv[2]), sys.argv[3]
x = [torch.from_numpy(a).to(device) for a in random(name, batch, 0).values()]
status = lambda key: int(Path("/proc/self/status").read_text().partition(key)[2].split()[0])
before = status("VmRSS:")
module = entry_of(name).build().eval().to(device)
with torch.inference_mode():
    for _ in range(3):
        module(*x)
print(torch.cuda.max_memory_allocated() if device == "cuda" else (status("VmHWM:") - before) * 1024)
"""


def random(name: str, batch: int, seed: int) -> dict[str, np.ndarray]:
    """Inputs of a model of the zoo."""
    from benchmarks.bench_cuda import inputs_of

    return inputs_of(entry_of(name), name, batch, seed)


class Timed:
    """Batches that come again and again, and when each was asked for."""

    def __init__(self, batches: list[dict[str, np.ndarray]], count: int) -> None:
        self.batches, self.count = batches, count
        self.asked: list[float] = []

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for at in range(self.count):
            self.asked.append(time.perf_counter())
            yield self.batches[at % len(self.batches)]
        self.asked.append(time.perf_counter())

    def seconds(self) -> float:
        """Of a batch, behind the first ones."""
        return (self.asked[-1] - self.asked[WARM]) / (self.count - WARM)


def one(name: str, batch: int, device: str, threads: int, count: int) -> dict[str, Any]:
    """Everything about one model."""
    import io

    import torch

    from neurenix.hardware import get_backend

    module, arrays = entry_of(name).build().eval(), random(name, batch, 0)
    file = io.BytesIO()
    small = tuple(torch.from_numpy(array) for array in arrays.values())
    torch.onnx.export(module, small, file, dynamo=False, input_names=list(arrays))
    shapes = {key: array.shape for key, array in arrays.items()}
    backend = get_backend(device)
    full = backend.optimize_model(file.getvalue(), shapes, threads=threads)
    given = Timed([random(name, batch, 100 + seed) for seed in range(3)], count)
    start = time.perf_counter()
    int8 = backend.optimize_model(file.getvalue(), shapes, precision="int8", calibration=given, threads=threads)
    built = time.perf_counter() - start
    for _ in range(3):
        full(arrays)
    call = float(np.median([measure.milliseconds(lambda: full(arrays)) for _ in range(15)]))
    memory = int8.memory_required()
    ours = memory.weights + memory.activations
    command = [sys.executable, "-c", EAGER, name, str(batch), device]
    eager = int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])
    return {
        "threads": threads,
        "float32_ms": round(call, 3),
        "calibration_ms": round(1e3 * given.seconds(), 3),
        "rate": round(call / (1e3 * given.seconds()), 3),
        "build_s": round(built, 1),
        "weights_mib": round(memory.weights / 2**20, 1),
        "activations_mib": round(memory.activations / 2**20, 1),
        "eager_peak_mib": round(eager / 2**20, 1),
        "memory": round(ours / eager, 3),
    }


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--count", type=int, default=12, help="batches of the calibration")
    parser.add_argument("--alone", action="store_true", help="in this process, and prints JSON")
    options = parser.parse_args()
    case = (options.model, options.batch, options.device, options.threads, options.count)
    if options.alone:
        print(json.dumps(one(*case)))
        return
    names = ("model", "batch", "device", "threads", "count")
    given = [f"--{name}={value}" for name, value in zip(names, case, strict=True)]
    command = [sys.executable, "-m", "benchmarks.bench_calibration", "--alone", *given]
    found = measure.in_process(command, options.threads, 400)
    file = measure.RESULTS / "calibration.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}
    results[f"{options.model}:{options.batch} {options.device}"] = found
    print(json.dumps(found, indent=1))
    print("written:", measure.write("calibration", results, {"count": options.count}))


if __name__ == "__main__":
    main()
