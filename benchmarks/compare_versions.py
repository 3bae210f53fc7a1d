"""Two versions of Neurenix beside each other: times of calls and of builds, processes in turn.

    python -m benchmarks.compare_versions --old /tmp/old --new /tmp/new --models resnet50 yolov5s --processes 5

`--old` and `--new` are folders with a package `neurenix` each. Each process opens the same ONNX file with one of them,
builds and calls; processes of the old version, the new one and the old one again follow each other, so that the ratio
of the two halves of the old version's times is what noise makes. All of them import their packages at once, and then
wait for their turn. On a GPU arrays lie there, and a time is that of many calls in its stream. Each side has caches of
its own, which its first process finds empty: that one's build counts as cold, those of the others as warm. Results
join those in benchmarks/results/versions.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_models import export

NAME = "versions"
ROUNDS = 7


def timed(file: Path, shape: list[int], options: argparse.Namespace) -> dict[str, float]:
    """Times of this process' version: the build in seconds, the least of some rounds of calls in microseconds each."""
    from neurenix import hardware

    rng = np.random.default_rng(0)
    x: Any = rng.standard_normal(shape, np.float32)
    on_gpu = options.device == "cuda"
    if on_gpu:
        import torch

        x = torch.from_numpy(x).cuda()
    print("ready", flush=True)
    input()
    start = time.perf_counter()
    backend = hardware.get_backend(options.device, fallback=False)
    given: dict[str, Any] = {"precision": options.precision} | ({} if on_gpu else {"threads": options.threads})
    model = backend.optimize_model(file, {"input": tuple(shape)}, **given)
    model(x)
    built = time.perf_counter() - start

    def round_of(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            model(x)
        if on_gpu:
            torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - begin) / calls

    calls = int(max(3, min(500, 3e5 / round_of(5))))
    return {"us": min(round_of(calls) for _ in range(ROUNDS)), "build_s": built}


def started(folder: str, cache: Path, file: Path, shape: list[int], options: argparse.Namespace) -> Any:
    """A process of the version in a folder, which waits for a line before it builds."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.compare_versions",
        "--one",
        str(file),
        json.dumps(shape),
    ]
    for key in ("device", "precision", "threads"):
        command += [f"--{key}", str(getattr(options, key))]
    path = os.pathsep.join([folder, str(Path(__file__).parent.parent)])
    variables = {**os.environ, "PYTHONPATH": path, "NEURENIX_CACHE_DIR": str(cache)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)


def said(process: Any) -> str:
    """The next line of a process."""
    line: str = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process ended with {process.wait()}")
    return line


def turn(process: Any) -> dict[str, float]:
    """The times that a process finds, now."""
    process.stdin.write("\n")
    process.stdin.flush()
    found: dict[str, float] = json.loads(said(process))
    process.wait()
    return found


def compared(file: Path, shape: list[int], options: argparse.Namespace) -> dict[str, float]:
    """Medians of both versions over processes that take turns, their ratio, and that of the old one to itself."""
    found: dict[str, list[dict[str, float]]] = {"old": [], "new": [], "again": []}
    folders = {side: options.new if side == "new" else options.old for side in found}
    # Whatever the machine reads from its disk for the first time is read by the first one.
    turns = ["none", *list(folders) * options.processes]
    with tempfile.TemporaryDirectory() as caches:
        processes = [
            started(folders.get(side, options.old), Path(caches) / side, file, shape, options) for side in turns
        ]
        try:
            for process in processes:
                said(process)
            for side, process in zip(turns, processes, strict=True):
                found.setdefault(side, []).append(turn(process))
        finally:
            for process in processes:
                process.kill()
    us = {side: statistics.median(each["us"] for each in found[side]) for side in folders}
    row = {f"{side}_us": round(time, 1) for side, time in us.items()}
    row |= {
        "processes": options.processes,
        "ratio": round(us["new"] / us["old"], 3),
        "band": round(us["again"] / us["old"], 3),
    }
    for side in folders:
        first, *others = found[side]
        row[f"{side}_cold_s"] = round(first["build_s"], 2)
        row[f"{side}_warm_s"] = round(statistics.median(each["build_s"] for each in others), 2)
    return row


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--old")
    parser.add_argument("--new")
    parser.add_argument("--models", nargs="+", default=["resnet50", "yolov5s", "mobilenetv3", "unet"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(timed(Path(options.one[0]), json.loads(options.one[1]), options)))
        return
    record = measure.RESULTS / f"{NAME}.json"
    results = json.loads(record.read_text())["results"] if record.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            _, x, file = export(name, options.batch, Path(folder))
            row: dict[str, Any] = compared(file, list(x.shape), options)
            if options.device == "cuda":
                import torch

                row["gpu"] = torch.cuda.get_device_name()
            results[f"{name} b{options.batch} {options.device} {options.precision}"] = row
            print(f"{name:14} b{options.batch} {options.device} {options.precision}  {row}", flush=True)
            measure.write(NAME, results, {"processes": options.processes, "threads": options.threads})


if __name__ == "__main__":
    main()
