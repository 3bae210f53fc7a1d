"""`torch.compile(model, backend="neurenix")` over models of timm and transformers: right, how much of it, how fast.

Each model has a process of its own, and its rows go into results/torch_compile.json (torch_compile_cuda.json) at once:
a run that is started again goes on where it was. The names are drawn by `--seed`, which is printed.

    python -m benchmarks.bench_torch_compile --seed 1 --timm 40 --transformers 30
    python -m benchmarks.bench_torch_compile --seed 1 --dynamic --timm 10 --transformers 10
    python -m benchmarks.bench_torch_compile --seed 1 --times
    python -m benchmarks.bench_torch_compile --seed 1 --cuda --timm 20 --transformers 0 --jobs 4

A row without `--times` says how far results are from torch's (of the greatest element), in how many partitions, the
share of the time in engines, and what torch ran; engines are not timed then. With `--times`, kernels are chosen as
usual, and inductor (frozen) runs beside in turns. With `--cuda` models are float16 on a GPU, in batches of 1 and 8,
beside `mode="reduce-overhead"`: inductor compiles several at once, and nothing else goes on where ours builds and where
times are taken (rows that say nothing of `alone` are from before that, and are made anew). There an error is the root
mean square against float32, as a share, beside that of eager float16.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import fcntl
import functools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.bench_cuda import rms
from benchmarks.measure import RESULTS, in_process, interleaved, milliseconds, parser, summary, write

NAME = "torch_compile"
#: Shapes of the calls: batch and length.
STATIC = [(2, 32)]
DYNAMIC = [(2, 32), (3, 17), (5, 48)]
#: What calls on a GPU have.
CUDA_BATCHES, CUDA_LENGTH = (1, 8), 128
#: Turns of each side, and calls in each.
TURNS, CALLS = 8, 12
#: Shared by processes that compile, and held alone by one that builds or takes times on the GPU; who waits for it holds
#: the gate, so that those who share it let him through.
LOCK = os.path.join(tempfile.gettempdir(), "neurenix-bench-torch-compile")
GATE = f"{LOCK}-gate"
QUICK = {"optimization_level": 0, "timing_cache": False, "cache": False}


@contextlib.contextmanager
def on_the_gpu(*, alone: bool) -> Iterator[None]:
    """With the GPU shared with others who share it, or alone."""
    with open(GATE, "w") as gate, open(LOCK, "w") as lock:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # A process that was started meanwhile may hold the file as well.
            fcntl.flock(lock, fcntl.LOCK_UN)


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


def on_gpu(name: str, kind: str) -> dict[str, Any]:
    """The row of a model in float16 on a GPU."""
    import torch

    from benchmarks.torch_compile_models import made
    from neurenix.torch import counters

    with on_the_gpu(alone=False):
        model, inputs = made(name, kind)
        exact, half = model.cuda(), copy.deepcopy(model).half().cuda()
    row: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "alone": True}
    for batch in CUDA_BATCHES:
        row[f"b{batch}"] = _batch_on_gpu(exact, half, tuple(each.cuda() for each in inputs(batch, CUDA_LENGTH)))
    return {**row, "fallbacks": counters().get("fallbacks", 0)}


def _batch_on_gpu(exact: Any, half: Any, given: tuple[Any, ...]) -> dict[str, Any]:
    """The times of a batch and its errors, of ours, of inductor, and eager."""
    import torch

    from neurenix.torch.dynamo import neurenix

    torch._dynamo.reset()
    narrow = tuple(each.half() if each.is_floating_point() else each for each in given)
    theirs = torch.compile(half, mode="reduce-overhead", dynamic=False)
    ours = torch.compile(half, backend=neurenix, dynamic=False)
    with torch.no_grad(), on_the_gpu(alone=False):
        wanted = exact(*given)
        for _ in range(4):
            # What a captured graph gives is written to again by the next call.
            inductor = theirs(*narrow).clone()
    with torch.no_grad(), on_the_gpu(alone=True):
        began = time.perf_counter()
        found = ours(*narrow).clone()
        built = time.perf_counter() - began
        runs = {"neurenix": ours, "inductor": theirs, "eager": half}
        times = {each: summary(found)["median_ms"] for each, found in _in_turns(runs, narrow).items()}
        results = {"neurenix": found, "inductor": inductor, "eager": half(*narrow)}
        errors = {each: float(f"{rms(one, wanted.double()):.3g}") for each, one in results.items()}
    return {
        **{f"{each}_ms": taken for each, taken in times.items()},
        "ratio": round(times["neurenix"] / times["inductor"], 3),
        "errors": errors,
        "build_s": round(built, 1),
    }


def _in_turns(runs: dict[str, Callable[..., Any]], given: tuple[Any, ...]) -> dict[str, list[float]]:
    """Milliseconds of single calls until the GPU is done, in turns: what a caller waits for.

    Events on the GPU would leave out what the processor does before the first kernel wherever the GPU is still at work.
    """
    import torch

    def done(run: Callable[..., Any]) -> None:
        run(*given)
        torch.cuda.synchronize()

    found: dict[str, list[float]] = {each: [] for each in runs}
    for _ in range(TURNS):
        for each, run in runs.items():
            done(run)
            found[each] += [milliseconds(functools.partial(done, run)) for _ in range(CALLS)]
    return found


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


def is_final(row: dict[str, Any]) -> bool:
    """Whether a row of a GPU was made with it alone, or failed otherwise than by its time, in which waits count."""
    return "longer than" not in row["failed"] if "failed" in row else "alone" in row


def told(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the rows come to."""
    if any("b1" in row for row in rows.values()):
        return on_gpus(rows)
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


def on_gpus(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the rows of a GPU come to."""
    batches = [f"b{batch}" for batch in CUDA_BATCHES]
    timed_ones = {f"{key} {batch}": row[batch] for key, row in rows.items() for batch in batches if batch in row}
    off = {key: each["errors"]["neurenix"] / max(each["errors"]["eager"], 1e-12) for key, each in timed_ones.items()}
    return {
        "models": len(rows),
        "with the GPU alone": sum("alone" in row for row in rows.values()),
        "failed": sorted(key for key, row in rows.items() if "failed" in row),
        "fell back": sorted(key for key, row in rows.items() if row.get("fallbacks")),
        "median ratio": statistics.median(each["ratio"] for each in timed_ones.values()),
        "above 1.0": sorted(key for key, each in timed_ones.items() if each["ratio"] > 1),
        "error more than 1.1 of eager's": sorted(key for key, share in off.items() if share > 1.1),
    }


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--timm", type=int, default=40)
    made.add_argument("--transformers", type=int, default=30)
    made.add_argument("--dynamic", action="store_true", help="batch and length vary")
    made.add_argument("--times", action="store_true", help="against inductor; wants a machine that does nothing else")
    made.add_argument("--cuda", action="store_true", help="in float16 on a GPU, against reduce-overhead")
    made.add_argument("--jobs", type=int, default=1, help="models at a time, with --cuda")
    made.add_argument("--limit", type=int, default=600, help="seconds for a model")
    made.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no model is started")
    made.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = made.parse_args()
    if arguments.worker:
        mode, kind, name = arguments.worker.split("/", 2)
        try:
            row = on_gpu(name, kind) if mode == "cuda" else worker(name, kind, mode, arguments.threads)
            print(json.dumps(row))
        except Exception as error:
            traceback.print_exc()
            print(json.dumps({"failed": f"{type(error).__name__}: {str(error)[:500]}"}))
        return 0
    from benchmarks.torch_compile_models import names_of_timm, names_of_transformers

    mode = next((one for one in ("cuda", "dynamic", "times") if getattr(arguments, one)), "static")
    drawn = {"transformers": names_of_transformers(arguments.seed, arguments.transformers)}
    drawn["timm"] = names_of_timm(arguments.seed, arguments.timm)
    print(f"seed {arguments.seed}: {json.dumps(drawn)}", flush=True)
    results = f"{NAME}_cuda" if arguments.cuda else NAME
    path, began = RESULTS / f"{results}.json", time.monotonic()
    rows = json.loads(path.read_text())["results"]["rows"] if path.exists() else {}
    keys = [f"{mode}/{kind}/{name}" for kind, names in drawn.items() for name in names]

    def made_row(key: str) -> None:
        if time.monotonic() - began > arguments.budget:
            return
        row = row_of(key, arguments)
        with lock:
            rows[key] = row
            print(key, json.dumps(row), flush=True)
            found = {
                each: told({k: r for k, r in rows.items() if k.startswith(each)})
                for each in sorted({k.split("/")[0] for k in rows})
            }
            write(results, {"summary": found, "rows": rows}, {"threads": arguments.threads, "seed": arguments.seed})

    lock = threading.Lock()
    with ThreadPoolExecutor(arguments.jobs if arguments.cuda else 1) as pool:
        stands = is_final if arguments.cuda else bool
        list(pool.map(made_row, [key for key in keys if not stands(rows.get(key, {}))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
