"""`torch.compile(model, backend="neurenix")` over models of timm and transformers: right, how much of it, how fast.

Each model has a process of its own, and its rows go into results/torch_compile.json at once: a run that is started
again goes on where it was. The names are drawn by `--seed`, which is printed.

    python -m benchmarks.bench_torch_compile --seed 1 --timm 40 --transformers 30
    python -m benchmarks.bench_torch_compile --seed 1 --dynamic --timm 10 --transformers 10
    python -m benchmarks.bench_torch_compile --seed 1 --times

A row without `--times` says how far results are from torch's (of the greatest element), in how many partitions, the
share of the time in engines, and what torch ran; engines are not timed then. With `--times`, kernels are chosen as
usual, and inductor (frozen) runs beside in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from benchmarks.measure import RESULTS, in_process, interleaved, parser, summary, write

NAME = "torch_compile"
#: Shapes of the calls: batch and length.
STATIC = [(2, 32)]
DYNAMIC = [(2, 32), (3, 17), (5, 48)]
QUICK = {"optimization_level": 0, "timing_cache": False, "cache": False}


def worker(name: str, kind: str, mode: str, threads: int) -> dict[str, Any]:
    """The row of a model."""
    import torch

    from benchmarks.torch_compile_models import made
    from neurenix.torch import counters, reports
    from neurenix.torch.dynamo import neurenix

    torch.set_num_threads(threads)
    model, inputs = made(name, kind)
    calls = [inputs(*sizes) for sizes in (DYNAMIC if mode == "dynamic" else STATIC)]
    options = {"threads": threads, **({} if mode == "times" else QUICK)}
    pictures = calls[0][0].ndim == 4
    function = torch.compile(
        model, backend=neurenix, dynamic=True if mode == "dynamic" and not pictures else None, options=options
    )
    if mode == "dynamic" and pictures:
        # Of pictures the batch alone.
        for given in calls:
            torch._dynamo.mark_dynamic(given[0], 0)
    with torch.no_grad():
        wanted = [model(*given) for given in calls]
        began = time.perf_counter()
        found = [function(*given) for given in calls]
        row: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 1)}
        row["error"] = max(_error(one, other) for one, other in zip(found, wanted, strict=True))
        row["spread"] = round(float(wanted[0].float().std()), 6)
        before = [(one, one.nanoseconds, [part.nanoseconds for part in one.partitions]) for one in reports()]
        for _ in range(3):
            function(*calls[-1])
        row["share"] = _share(before)
        if mode == "times":
            row["times"] = _times(model, function, calls[0])
    row["graphs"], row["partitions"] = len(reports()), sum(len(one.partitions) for one in reports())
    row["torch_ran"] = sorted({f"{one.operator}: {one.reason}" for report in reports() for one in report.refusals})
    row["fallbacks"] = counters().get("fallbacks", 0)
    return row


def _share(before: list[Any]) -> float:
    whole = sum(report.nanoseconds - old for report, old, _ in before)
    inside = sum(
        part.nanoseconds - old
        for report, _, parts in before
        for part, old in zip(report.partitions, parts, strict=True)
        if part.runs == "engine"
    )
    return round(inside / whole, 4) if whole else 0.0


def _error(found: Any, wanted: Any) -> float:
    top = wanted.double().abs().max().item() or 1.0
    return float((found.double() - wanted.double()).abs().max().item() / top)


def _times(model: Any, function: Callable[..., Any], given: Any) -> dict[str, Any]:
    import torch
    import torch._inductor.config as inductor

    inductor.freezing = True
    theirs = torch.compile(model, backend="inductor")
    theirs(*given)
    runs = {"neurenix": lambda: function(*given), "inductor": lambda: theirs(*given), "eager": lambda: model(*given)}
    times = {name: summary(found) for name, found in interleaved(runs, 15).items()}
    ratio = times["neurenix"]["median_ms"] / times["inductor"]["median_ms"]
    return {**times, "ratio": round(ratio, 3), "load": round(os.getloadavg()[0], 1)}


def row_of(key: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of a model, from a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench_torch_compile",
        "--worker",
        key,
        "--threads",
        str(arguments.threads),
    ]
    return in_process(command, arguments.threads, arguments.limit)


def told(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the rows come to."""
    import statistics

    right = [row for row in rows.values() if "error" in row]
    ratios = [row["times"]["ratio"] for row in right if "times" in row]
    return {
        "models": len(rows),
        "within 1e-4": sum(row["error"] <= 1e-4 for row in right),
        "failed": sorted(key for key, row in rows.items() if "failed" in row),
        "wrong": sorted(key for key, row in rows.items() if row.get("error", 0) > 1e-4),
        "fell back": sorted(key for key, row in rows.items() if row.get("fallbacks")),
        "median share": statistics.median([row["share"] for row in right]) if right else None,
        "median ratio": statistics.median(ratios) if ratios else None,
    }


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--timm", type=int, default=40)
    made.add_argument("--transformers", type=int, default=30)
    made.add_argument("--dynamic", action="store_true", help="batch and length vary")
    made.add_argument("--times", action="store_true", help="against inductor; wants a machine that does nothing else")
    made.add_argument("--limit", type=int, default=600, help="seconds for a model")
    made.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no model is started")
    made.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = made.parse_args()
    if arguments.worker:
        mode, kind, name = arguments.worker.split("/", 2)
        try:
            print(json.dumps(worker(name, kind, mode, arguments.threads)))
        except Exception as error:
            traceback.print_exc()
            print(json.dumps({"failed": f"{type(error).__name__}: {str(error)[:500]}"}))
        return 0
    from benchmarks.torch_compile_models import names_of_timm, names_of_transformers

    mode = "dynamic" if arguments.dynamic else "times" if arguments.times else "static"
    drawn = {"transformers": names_of_transformers(arguments.seed, arguments.transformers)}
    drawn["timm"] = names_of_timm(arguments.seed, arguments.timm)
    print(f"seed {arguments.seed}: {json.dumps(drawn)}", flush=True)
    path, began = RESULTS / f"{NAME}.json", time.monotonic()
    rows = json.loads(path.read_text())["results"]["rows"] if path.exists() else {}
    for kind, names in drawn.items():
        for name in names:
            key = f"{mode}/{kind}/{name}"
            if key in rows or time.monotonic() - began > arguments.budget:
                continue
            rows[key] = row_of(key, arguments)
            print(key, json.dumps(rows[key]), flush=True)
            found = {
                each: told({k: r for k, r in rows.items() if k.startswith(each)})
                for each in sorted({k.split("/")[0] for k in rows})
            }
            write(NAME, {"summary": found, "rows": rows}, {"threads": arguments.threads, "seed": arguments.seed})
    return 0


if __name__ == "__main__":
    sys.exit(main())
