"""How far ours and PyTorch's eager mode are from double precision on the GPU, in each precision, over the zoo.

    python -m benchmarks.accuracy_cuda --models resnet50 bert --precisions tf32 bf16 --budget 600

Errors are the root of the mean square over an output, as a share of that of the exact numbers, of the worst output;
the mean over some seeds of the inputs counts. Ours must be within 1.2 times PyTorch's in the same precision, and in
fp32 within 1e-4. Detectors are left out. Each model has a process of its own; what it has found counts even if time
runs out. Results join those in benchmarks/results/accuracy_cuda.json after each model. `--device cpu --small` is a
look without a GPU.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import queue
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_cuda import entry_of, rms
from benchmarks.zoo import DETECTORS

#: The dtype of PyTorch's layers in each precision, and whether it may round float32 to tf32.
PRECISIONS = {
    "fp32": ("float32", False),
    "tf32": ("float32", True),
    "fp16": ("float16", False),
    "bf16": ("bfloat16", False),
}
#: The greatest error in fp32, and in each other precision the greatest share of PyTorch's.
WITHIN = 1e-4
RATIO = 1.2
OPSET = 17
#: The file of the results, and what a line with one begins with.
NAME = "accuracy_cuda"
MARK = "RESULT "


def models() -> list[str]:
    """The zoo, but for detectors: how many boxes they find, and in which order, is a matter of rounding."""
    from benchmarks.zoo_models import ZOO

    return [name for name in ZOO if name not in DETECTORS]


def exported(module: Any, given: dict[str, Any]) -> bytes:
    """The model as ONNX at these shapes, out of the older exporter, or the newer one where that can't."""
    import torch

    def written(**options: Any) -> bytes:
        file = io.BytesIO()
        torch.onnx.export(module, tuple(given.values()), file, input_names=list(given), **options)
        return file.getvalue()

    logging.disable(logging.WARNING)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return written(dynamo=False, opset_version=OPSET)
        except Exception:
            return written(dynamo=True, external_data=False)


def outputs(result: Any) -> list[Any]:
    """All outputs of a model."""
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, (tuple, list)) else [result]


def error(got: list[Any], exact: list[Any]) -> float:
    """The error of the worst output; integers do not count."""
    if len(got) != len(exact) or any(a.shape != b.shape for a, b in zip(got, exact, strict=True)):
        raise ValueError(f"shapes {[tuple(a.shape) for a in got]} are not {[tuple(b.shape) for b in exact]}")
    return max(rms(a.to(b.device), b) for a, b in zip(got, exact, strict=True) if b.is_floating_point())


def attempt(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call gives, or what it fails with."""
    try:
        return call()
    except Exception as failure:
        return {"failed": f"{type(failure).__name__}: {failure}"[:500]}


class Subject:
    """A model of the zoo with its inputs and exact answers for each seed."""

    def __init__(self, name: str, seeds: int, device: str, small: bool) -> None:
        import torch

        entry = entry_of(name)
        self.entry = entry.sibling() if small else entry
        self.device = device
        self.module = self.entry.build()
        self.inputs = [self.entry.fill(self.entry.sizes[0], seed) for seed in range(seeds)]
        self.model = exported(self.module, self.inputs[0])
        exact = copy.deepcopy(self.module).double().to(device)
        with torch.inference_mode():
            self.exact = [outputs(exact(*self.cast(given, torch.float64))) for given in self.inputs]

    def cast(self, given: dict[str, Any], dtype: Any) -> list[Any]:
        """The inputs as PyTorch takes them, numbers in a dtype."""
        return [x.to(self.device, dtype if x.is_floating_point() else None) for x in given.values()]

    def of_torch(self, precision: str) -> dict[str, Any]:
        """PyTorch's error."""
        import torch

        name, rounds = PRECISIONS[precision]
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounds
        dtype = getattr(torch, name)
        module = copy.deepcopy(self.module).to(self.device, dtype)
        with torch.inference_mode():
            found = [outputs(module(*self.cast(given, dtype))) for given in self.inputs]
        return self.mean(found)

    def of_ours(self, precision: str, level: int) -> dict[str, Any]:
        """Our error, and who ran what."""
        import neurenix as nx

        shapes = {key: tuple(x.shape) for key, x in self.inputs[0].items()}
        start = time.perf_counter()
        # A precision that departs too far is to be seen here, and no fallback to float32.
        options: dict[str, Any] = {"precision": precision, "optimization_level": level, "verify": False}
        model = nx.hardware.get_backend(self.device).optimize_model(self.model, shapes, **options)
        seconds = round(time.perf_counter() - start, 1)
        found = [outputs(model.run({key: x.to(self.device) for key, x in given.items()})) for given in self.inputs]
        report = model.report()
        return self.mean(found) | {
            "build_s": seconds,
            "layers_per_dtype": {dtype: round(share, 3) for dtype, share in report["layers_per_dtype"].items()},
            "in_tf32": sum("tf32" in row["implementation"] for row in report["kernels"]),
            "on_cpu": sorted({row["kernel"] for row in report["kernels"] if row["provider"] == "cpu"})[:8],
            "notes": report["notes"],
        }

    def mean(self, found: list[list[Any]]) -> dict[str, Any]:
        """The mean error over the seeds, none where something is not finite, and that of each.

        What a call takes over from the one before it shows in the later ones.
        """
        errors = [error(got, exact) for got, exact in zip(found, self.exact, strict=True)]
        mean = float(np.mean(errors))
        rounded = [float(f"{each:.4g}") if np.isfinite(each) else None for each in errors]
        return {"rms": float(f"{mean:.4g}") if np.isfinite(mean) else None, "each": rounded}


def judged(precision: str, ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Both with their ratio, and whether that is what it must be; nothing is said where PyTorch has no number."""
    mine, other = ours.get("rms"), theirs.get("rms")
    ratio = round(mine / other, 3) if mine is not None and other else None
    # Where PyTorch has no number either, the model does not fit the precision.
    right: bool | None = (
        None if mine is None and other is None and "rms" in ours and "rms" in theirs else mine is not None
    )
    if mine is not None and not (PRECISIONS[precision][0] == "float32" and mine <= WITHIN):
        # What is as exact as fp32 must be is right in tf32 as well, where nothing of a model may be rounded.
        right = False if precision == "fp32" else ratio <= RATIO if ratio is not None else None
    return {"neurenix": ours, "torch_eager": theirs, "ratio": ratio, "right": right}


def one(options: Any) -> None:
    """One model in this process: a line of JSON for each precision."""
    subject = Subject(options.alone, options.seeds, options.device, options.small)
    for precision in options.precisions:
        theirs = attempt(lambda p=precision: subject.of_torch(p))
        ours = attempt(lambda p=precision: subject.of_ours(p, options.level))
        print(MARK + json.dumps({precision: judged(precision, ours, theirs)}), flush=True)


def run(name: str, options: Any, seconds: float, gpu: int) -> tuple[dict[str, Any], str]:
    """What a process of its own finds about a model in so many seconds, and why no more: empty if time ran out."""
    command = [sys.executable, "-m", "benchmarks.accuracy_cuda", "--alone", name, "--precisions", *options.precisions]
    command += ["--seeds", str(options.seeds), "--level", str(options.level), "--device", options.device]
    command += ["--small"] if options.small else []
    around = os.environ | ({"CUDA_VISIBLE_DEVICES": str(gpu)} if options.device == "cuda" else {})
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=around)
        said, missing = done.stdout, done.stderr[-1500:] or f"its process ended with {done.returncode}"
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        missing = ""
    found: dict[str, Any] = {}
    for line in said.splitlines():
        found |= json.loads(line[len(MARK) :]) if line.startswith(MARK) else {}
    return found, missing


def row(name: str, precision: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    if "failed" in found:
        return f"{name:16} {precision:5} {found['failed'][-200:]}"

    def said(side: dict[str, Any]) -> str:
        return (
            side["failed"][:90] if "failed" in side else "not finite" if side["rms"] is None else f"{side['rms']:.2e}"
        )

    ratio = f"{found['ratio']:6.2f}" if found["ratio"] is not None else "     -"
    verdict = {True: "right", False: "WRONG", None: "?"}[found["right"]]
    return f"{name:16} {precision:5} {said(found['neurenix']):>10} {said(found['torch_eager']):>10} {ratio}  {verdict}"


def all_of(names: list[str], options: Any, gpus: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is found about each model, as it comes; `jobs` of them at once, in turns on each GPU.

    A precision is missing where the budget ended before it.
    """
    end = time.monotonic() + options.budget
    free: queue.Queue[int] = queue.Queue()
    for job in range(options.jobs):
        free.put(job % gpus)

    def of(name: str) -> tuple[str, dict[str, Any]]:
        gpu = free.get()
        try:
            left = min(options.timeout, end - time.monotonic())
            if left < 1:
                return name, {}
            found, missing = run(name, options, left, gpu)
        finally:
            free.put(gpu)
        if missing or left == options.timeout:
            why = {"failed": missing or f"more than {options.timeout:.0f} s", "right": False}
            found = {precision: found.get(precision, why) for precision in options.precisions}
        return name, found

    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(of, name) for name in names]):
            yield done.result()


def main() -> int:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", help="names of the zoo; all but detectors")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=list(PRECISIONS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--level", type=int, default=3, help="optimization_level of ours")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="the models' small siblings; nothing is written")
    parser.add_argument("--jobs", type=int, default=1, help="models at once, spread over the GPUs")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each model")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds for all; what is left is not begun")
    parser.add_argument("--alone", help="runs one model in this process, and prints JSON")
    options = parser.parse_args()
    if options.alone:
        one(options)
        return 0
    known = models()
    unknown = set(options.models or []) - set(known)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
    import torch

    keeps = options.device == "cuda" and not options.small
    device = torch.cuda.get_device_name() if options.device == "cuda" else "processor"
    file = measure.RESULTS / f"{NAME}.json"
    results = json.loads(file.read_text()).get("results", {}) if keeps and file.exists() else {}
    print(f"{'model':16} {'':5} {'ours':>10} {'torch':>10} {'ratio':>6}", flush=True)
    verdicts: list[bool | None] = []
    skipped = []
    for name, found in all_of(options.models or known, options, max(torch.cuda.device_count(), 1)):
        skipped += [f"{name}:{precision}" for precision in options.precisions if precision not in found]
        results[name] = results.get(name, {}) | found
        for precision in found:
            print(row(name, precision, found[precision]), flush=True)
            verdicts.append(found[precision]["right"])
        if keeps:
            measure.write(NAME, results, {"seeds": options.seeds, "level": options.level, "device": device})
    print(f"{verdicts.count(True)} of {len(verdicts)} right, {verdicts.count(False)} wrong", flush=True)
    if skipped:
        print(f"no time for {' '.join(skipped)}")
    return int(False in verdicts)


if __name__ == "__main__":
    sys.exit(main())
