"""What each optimisation brings: passes, kernels of several layers, the arena and graphs, each switched off in turn.

    python -m benchmarks.optimization_impact --models resnet50 bert --processes 3

Each setting is a process of its own that builds the model without one of them (`NEURENIX_DISABLE`) and calls it;
settings take turns, and the full build runs twice in each turn: the ratio of its two halves is what noise makes. Passes
that rewrote nothing in the full build are left out. Some passes are there for others: what one brings alone may be less
than nothing. Writes benchmarks/results/impact.json.
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
from benchmarks.bench_int8 import floating

NAME = "impact"
#: What a setting may do without besides passes.
FEATURES = {"cpu": ("fusion", "arena"), "cuda": ("fusion", "arena", "graphs")}
#: Twice the same.
FULL = ("", "again")
CALLS = 15


def timed(file: Path, arrays: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The time of a call and the memory of activations in this process, and what its passes did."""
    from neurenix import hardware

    given = dict(np.load(arrays))
    backend = hardware.get_backend(options.device, fallback=False)
    chosen: dict[str, Any] = {"precision": options.precision, "optimization_level": options.level}
    if options.device == "cpu":
        chosen["threads"] = options.threads
    model = backend.optimize_model(file, {name: x.shape for name, x in given.items()}, **chosen)
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        model(given)
        times.append(1e3 * (time.perf_counter() - begin))
    report = model.report()
    return {
        "ms": min(times),
        "arena_bytes": report["memory"]["arena"],
        "kernels": len(report["kernels"]),
        "passes": {name: count for name, count in report["passes"] if count},
    }


def in_process(disabled: str, file: Path, arrays: Path, options: argparse.Namespace) -> dict[str, Any]:
    """As `timed`, in a process that does without something; the message where that can't be built."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.optimization_impact", "--one", str(file), str(arrays)]
    for key in ("device", "precision", "threads", "level"):
        command += [f"--{key}", str(getattr(options, key))]
    # Without its caches a full build would be another one.
    env = {**os.environ, "NEURENIX_CACHE": "0", "NEURENIX_DISABLE": "" if disabled in FULL else disabled}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def impact(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Time and memory without each, as ratios to the full build of the same turn."""
    with tempfile.TemporaryDirectory() as folder:
        given, file = floating(name, options.batch, Path(folder))
        arrays = Path(folder, "arrays.npz")
        np.savez(arrays, **given)  # type: ignore[arg-type]
        full = in_process("", file, arrays, options)
        settings = [*FULL, *FEATURES[options.device], *full["passes"]]
        runs: dict[str, list[dict[str, Any]]] = {setting: [] for setting in settings}
        for _ in range(options.processes):
            for setting in settings:
                runs[setting].append(in_process(setting, file, arrays, options))
    base = [run["ms"] for run in runs[""]]
    result: dict[str, Any] = {"full": {"ms": min(base), "arena_bytes": full["arena_bytes"], "kernels": full["kernels"]}}
    for setting in settings[1:]:
        row = runs[setting]
        if "error" in row[0]:
            result[setting] = row[0]
            continue
        result[setting] = {
            "time without / with": round(statistics.median(r["ms"] / b for r, b in zip(row, base, strict=True)), 3),
            "arena without / with": round(row[0]["arena_bytes"] / max(full["arena_bytes"], 1), 3),
            "kernels": row[0]["kernels"],
            "rewrote": full["passes"].get(setting),
        }
    return result


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=["resnet50"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--one", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(timed(*options.one, options)))
        return
    results = {}
    for name in options.models:
        found = results[f"{name} b{options.batch} {options.precision} {options.device}"] = impact(name, options)
        for setting, row in found.items():
            print(f"{name:16} {setting:24} {json.dumps(row)}", flush=True)
        print(measure.write(NAME, results, {"level": options.level, "processes": options.processes}))


if __name__ == "__main__":
    main()
