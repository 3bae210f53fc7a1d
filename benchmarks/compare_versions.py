"""Two versions of Neurenix beside each other: times of calls and of builds, processes in turn.

    python -m benchmarks.compare_versions --old /tmp/old --new /tmp/new --models resnet50 yolov5s --processes 5

`--old` and `--new` are folders with a package `neurenix` each. Models are those of `networks.py`, of the zoo and of
`more_models.py`. Each process opens the same ONNX file with one of them, builds and calls; processes of the old
version, the new one and the old one again follow each other, so that the ratio of the two halves of the old version's
times is what noise makes. All of them import their packages at once, and then wait for their turn. On a GPU arrays lie
there, and a time is that of many calls in its stream. Each side has caches of its own, which its first process finds
empty: that one's build counts as cold, those of the others as warm. With `--together` the warm builds go on beside each
other, after the cold ones and before all calls, and are not timed: a GPU that is lent for minutes has no time for them
one by one. Results join those in benchmarks/results/versions.json.
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


def written(name: str, batch: int, folder: Path) -> Path:
    """The ONNX file of a model, with inputs for it beside it."""
    from benchmarks.networks import NETWORKS

    if name in NETWORKS:
        _, x, file = export(name, batch, folder)
        arrays = {"input": x}
    else:
        import torch

        from benchmarks.accuracy_cuda import exported
        from benchmarks.bench_cuda import inputs_of
        from benchmarks.more_models import MORE
        from benchmarks.zoo_models import ZOO

        entry, file = (ZOO | MORE)[name], folder / f"{name}.onnx"
        torch.manual_seed(0)
        module, arrays = entry.build().eval(), inputs_of(entry, name, batch, 0)
        file.write_bytes(exported(module, {key: torch.from_numpy(array) for key, array in arrays.items()}))
    np.savez(file.with_suffix(".npz"), **arrays)
    return file


def timed(file: Path, options: argparse.Namespace) -> None:
    """Prints times of this process' version, one for each line that it reads: the seconds of the build, and then the
    microseconds of a call, the least of some rounds of them."""
    from neurenix import hardware

    given: dict[str, Any] = dict(np.load(file.with_suffix(".npz")))
    shapes = {name: array.shape for name, array in given.items()}
    on_gpu = options.device == "cuda"
    if on_gpu:
        import torch

        given = {name: torch.from_numpy(array).cuda() for name, array in given.items()}
    print("ready", flush=True)
    input()
    start = time.perf_counter()
    backend = hardware.get_backend(options.device, fallback=False)
    threads: dict[str, Any] = {} if on_gpu else {"threads": options.threads}
    model = backend.optimize_model(file, shapes, precision=options.precision, **threads)
    model.run(given)
    print(time.perf_counter() - start, flush=True)
    input()

    def round_of(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            model.run(given)
        if on_gpu:
            torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - begin) / calls

    calls = int(max(3, min(500, 3e5 / round_of(5))))
    print(min(round_of(calls) for _ in range(ROUNDS)), flush=True)


def started(folder: str, cache: Path, file: Path, options: argparse.Namespace) -> Any:
    """A process of the version in a folder, which waits for a line before it builds."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.compare_versions", "--one", str(file)]
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


def asked(process: Any) -> None:
    """Lets a process go on with what it does next."""
    process.stdin.write("\n")
    process.stdin.flush()


def turns(processes: list[tuple[str, Any]], together: bool) -> dict[str, list[tuple[float, float]]]:
    """For each side what its processes say: seconds of the build and microseconds of a call."""
    found: dict[str, list[tuple[float, float]]] = {}
    built: dict[Any, float] = {}
    if together:
        # The first process of each side finds no cache; they come before all others.
        every = [process for _, process in processes]
        sides = len({side for side, _ in processes})
        for group in [*([process] for process in every[:sides]), every[sides:]]:
            for process in group:
                asked(process)
            for process in group:
                built[process] = float(said(process))
            print("  built in", ", ".join(f"{built[process]:.1f} s" for process in group), file=sys.stderr, flush=True)
    for side, process in processes:
        if process not in built:
            asked(process)
            built[process] = float(said(process))
        asked(process)
        found.setdefault(side, []).append((built[process], float(said(process))))
        print(f"  {side}: build {found[side][-1][0]:.2f} s, {found[side][-1][1]:.1f} us", file=sys.stderr, flush=True)
        process.wait()
    return found


def compared(file: Path, options: argparse.Namespace) -> dict[str, float]:
    """Medians of both versions over processes that take turns, their ratio, and that of the old one to itself."""
    folders = {"old": options.old, "new": options.new, "again": options.old}
    # Whatever the machine reads from its disk for the first time is read by the first one.
    order = ["none", *list(folders) * options.processes]
    with tempfile.TemporaryDirectory() as caches:
        processes = [
            (side, started(folders.get(side, options.old), Path(caches) / side, file, options)) for side in order
        ]
        try:
            for _, process in processes:
                said(process)
            found = turns(processes, options.together)
        finally:
            for _, process in processes:
                process.kill()
    us = {side: statistics.median(call for _, call in found[side]) for side in folders}
    row = {f"{side}_us": round(time, 1) for side, time in us.items()}
    row |= {
        "processes": options.processes,
        "ratio": round(us["new"] / us["old"], 3),
        "band": round(us["again"] / us["old"], 3),
    }
    for side in folders:
        (first, _), *others = found[side]
        row[f"{side}_cold_s"] = round(first, 2)
        if others and not options.together:
            row[f"{side}_warm_s"] = round(statistics.median(build for build, _ in others), 2)
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
    parser.add_argument("--together", action="store_true", help="warm builds beside each other, which are not timed")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        timed(Path(options.one), options)
        return
    record = measure.RESULTS / f"{NAME}.json"
    results = json.loads(record.read_text())["results"] if record.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            row: dict[str, Any] = compared(written(name, options.batch, Path(folder)), options)
            if options.device == "cuda":
                import torch

                row["gpu"] = torch.cuda.get_device_name()
            results[f"{name} b{options.batch} {options.device} {options.precision}"] = row
            print(f"{name:14} b{options.batch} {options.device} {options.precision}  {row}", flush=True)
            measure.write(NAME, results, {"processes": options.processes, "threads": options.threads})


if __name__ == "__main__":
    main()
