"""The GPU in 8 bits: ours with `precision="int8"`, "fp8" or one of them and "fp16" beside our fp16 in the same process.

    python -m benchmarks.bench_int8_cuda --models resnet50:1 resnet50:32 resnet50:128

Each model has a process of its own. Calibration and inputs are random normal numbers of different seeds, weights
those of the zoo. Times are those of `bench_cuda`, in turns, with arrays on the GPU.
`sqnr_db` is 10 log10 of the mean square of the outputs over that of the error against PyTorch in double precision.
Results join those of the same GPU in benchmarks/results/int8_cuda.json.
"""

from __future__ import annotations

import copy
import io
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_cuda import OPSET, entry_of, first, inputs_of, narrow, timed

MODELS = "resnet50:1 resnet50:32 resnet50:128 yolov5s:32 unet:32 unet3d:1 bert:32".split()
BATCHES = 4
ROUNDS = 3
PRECISIONS = ("fp16", "int8", "fp8", "int8+fp16", "fp8+fp16")


def decibels(got: Any, exact: Any) -> float:
    """The signal-to-noise ratio."""
    noise = float(((got.double() - exact) ** 2).mean())
    return round(10 * float(np.log10(float((exact**2).mean()) / max(noise, 1e-30))), 2)


def one(name: str, batch: int, rounds: int, precisions: Sequence[str]) -> dict[str, Any]:
    """Everything about one model."""
    import torch

    import neurenix as nx

    entry = entry_of(name)
    torch.manual_seed(0)
    module = entry.build().eval()
    arrays = inputs_of(entry, name, batch, 0)
    file = io.BytesIO()
    small = tuple(torch.from_numpy(array) for array in arrays.values())
    torch.onnx.export(
        module, small, file, dynamo=False, opset_version=OPSET, input_names=list(arrays), do_constant_folding=True
    )
    exact = copy.deepcopy(module).double().cuda()
    shapes = {key: tuple(array.shape) for key, array in arrays.items()}
    calibration = [inputs_of(entry, name, batch, 100 + seed) for seed in range(BATCHES)]
    backend = nx.hardware.get_backend("cuda")
    found: dict[str, Any] = {precision: {} for precision in precisions} | {"gpu": torch.cuda.get_device_name()}
    models = {}
    for precision in precisions:
        given: dict[str, Any] = {"calibration": calibration} if precision != "fp16" else {}
        start = time.perf_counter()
        models[precision] = backend.optimize_model(
            file.getvalue(), shapes, precision=precision, io_dtype="fp16", **given
        )
        found[precision]["build_s"] = round(time.perf_counter() - start, 1)
    on_gpu = {key: torch.from_numpy(narrow(array)).cuda() for key, array in arrays.items()}
    times: dict[str, list[dict[str, float]]] = {precision: [] for precision in PRECISIONS}
    for _ in range(ROUNDS):
        for precision, model in models.items():
            times[precision].append(timed(lambda model=model: model.run(on_gpu), rounds))
    with torch.inference_mode():
        new = [torch.from_numpy(array).cuda() for array in inputs_of(entry, name, batch, 1).values()]
        want = first(exact(*[t.double() if t.is_floating_point() else t for t in new]))
    near = dict(zip(arrays, [t.half() if t.is_floating_point() else t for t in new], strict=True))
    for precision, model in models.items():
        row = found[precision]
        for figure in ("median_ms", "stream_ms"):
            row[figure] = min(each[figure] for each in times[precision])
        row["sqnr_db"] = decibels(first(model.run(near)), want)
        report = model.report()
        row["kernels_ms"] = round(sum(kernel["tuned_nanoseconds"] for kernel in report["kernels"]) / 1e6, 4)
        row["arithmetic"] = {key: round(share, 4) for key, share in report["arithmetic_per_dtype"].items()}
        row["activations_mib"] = round(model.memory_required().activations / 2**20, 1)
        row["notes"] = report["notes"][:8]
        row["slowest"] = slowest(report["kernels"])
    for precision in precisions[1:]:
        found[f"{precision} / fp16"] = round(found[precision]["median_ms"] / found["fp16"]["median_ms"], 3)
    return found


def slowest(kernels: list[dict[str, Any]]) -> list[str]:
    """Kernels of one name and implementation together, those first that take most of the time."""
    alike: dict[str, list[float]] = {}
    for kernel in kernels:
        alike.setdefault(f"{kernel['kernel']} {kernel['implementation']}", []).append(kernel["tuned_nanoseconds"] / 1e3)
    ranked = sorted(alike.items(), key=lambda named: -sum(named[1]))
    return [f"{sum(times):.1f} us in {len(times)}: {name}" for name, times in ranked[:24]]


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=MODELS, help="name:batch")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS[:3], help="fp16 comes first")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--timeout", type=float, default=240, help="seconds for each model")
    parser.add_argument("--alone", help="runs one model in this process, and prints JSON")
    options = parser.parse_args()
    if options.alone:
        name, _, batch = options.alone.partition(":")
        print(json.dumps(one(name, int(batch), options.rounds, options.precisions)))
        return
    import torch

    file = measure.RESULTS / "int8_cuda.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}
    for model in options.models:
        command = [
            sys.executable,
            "-m",
            "benchmarks.bench_int8_cuda",
            "--alone",
            model,
            "--rounds",
            str(options.rounds),
            "--precisions",
            *options.precisions,
        ]
        found = measure.in_process(command, options.threads, options.timeout)
        known = results.get(model, {})
        # A row is that of one GPU.
        results[model] = (known | found) if known.get("gpu") == found.get("gpu") else found
        print(model, shown(found), flush=True)
        measure.write("int8_cuda", results, {"rounds": options.rounds, "device": torch.cuda.get_device_name()})


def shown(found: dict[str, Any]) -> str:
    """A line of the table."""
    if "failed" in found:
        return str(found["failed"])
    figures = ("median_ms", "kernels_ms", "sqnr_db", "build_s")
    there = [p for p in PRECISIONS if p in found]
    each = "; ".join(f"{p} " + " ".join(str(found[p][figure]) for figure in figures) for p in there)
    ratios = {p: (found[f"{p} / fp16"], found[p]["arithmetic"]) for p in there[1:]}
    return f"ms, kernels ms, dB, build s: {each}; of fp16's time, and arithmetic: {ratios}"


if __name__ == "__main__":
    main()
