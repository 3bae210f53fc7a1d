"""The GPU: ours in fp16 beside PyTorch's eager mode and torch.compile, and how far each is from double precision.

    python -m benchmarks.bench_cuda --models resnet50:1 resnet50:32 bert:1

Each model has a process of its own. Times are medians of calls between two CUDA events, arrays on the GPU, the GPU
idle before each, floats in float16 for all; `stream_ms` is the time of one of many calls that follow one another.
`numpy_ms` is a whole call of ours with numpy in and out. Results join those in benchmarks/results/cuda.json; of a model
that is run with --eager the times of torch.compile that stand there are kept.
"""

from __future__ import annotations

import copy
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import measure

#: What the benchmark runs when nobody says what.
MODELS = (
    "resnet50:1 resnet50:32 resnet50:128 yolov5s:1 yolov5s:32 bert:1 bert:32 gpt2:1 gpt2:32 unet:1 unet:32 "
    "vit_b_16:1 vit_b_16:32 unet3d:1 swin_t:32 yolov8n:1"
).split()
OPSET = 17
SEEDS = 5
#: The sizes of dynamic dimensions, besides the batch.
SIZES = {"sequence": 128}
SIDES = {"yolov5s": 640, "yolov8n": 640, "unet": 256, "unet3d": 64}


def entry_of(name: str) -> Any:
    """The model of the zoo."""
    from benchmarks.zoo_models import ZOO

    return ZOO[name]


def inputs_of(entry: Any, name: str, batch: int, seed: int) -> dict[str, np.ndarray]:
    """Arrays by name."""
    side = SIDES.get(name, 224)
    filled = entry.fill(SIZES | {"batch": batch, "height": side, "width": side, "depth": side}, seed)
    return {key: tensor.numpy() for key, tensor in filled.items()}


def timed(call: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Milliseconds on the device: of a call alone, and of one of many."""
    import torch

    def between(work: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    for _ in range(5):
        call()
    alone = [between(call) for _ in range(rounds)]
    many = between(lambda: [call() for _ in range(rounds)]) / rounds
    return {"median_ms": round(float(np.median(alone)), 4), "stream_ms": round(many, 4)}


def first(result: Any) -> Any:
    """The first output of a model."""
    return (
        next(iter(result.values())) if isinstance(result, dict) else result[0] if isinstance(result, tuple) else result
    )


def rms(got: Any, exact: Any) -> float:
    """Root of the mean square error, as a share of that of the exact numbers."""
    return float(((got.double() - exact) ** 2).mean().sqrt() / (exact**2).mean().sqrt())


def narrow(array: np.ndarray) -> np.ndarray:
    """Floats as float16."""
    return array.astype(np.float16) if array.dtype.kind == "f" else array


def one(name: str, batch: int, rounds: int, compiled: bool) -> dict[str, Any]:
    """Everything about one model."""
    import torch

    import neurenix as nx

    entry = entry_of(name)
    torch.manual_seed(0)
    module = entry.build().eval().cuda()
    arrays = inputs_of(entry, name, batch, 0)
    given = [torch.from_numpy(array).cuda() for array in arrays.values()]
    file = io.BytesIO()
    small = tuple(torch.from_numpy(array) for array in inputs_of(entry, name, batch, 0).values())
    torch.onnx.export(
        module.cpu(), small, file, dynamo=False, opset_version=OPSET, input_names=list(arrays), do_constant_folding=True
    )
    found: dict[str, Any] = {}
    exact = copy.deepcopy(module).double().cuda()
    half, planar = module.cuda().half(), given[0].dim() == 4 and given[0].is_floating_point()
    if planar:
        half = half.to(memory_format=torch.channels_last)

    def halved(tensors: list[Any]) -> list[Any]:
        near = [t.half() if t.is_floating_point() else t for t in tensors]
        return [near[0].to(memory_format=torch.channels_last), *near[1:]] if planar else near

    theirs = halved(given)
    with torch.inference_mode():
        half(*theirs)
        weights = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        half(*theirs)
        found["torch_activations_mib"] = round((torch.cuda.max_memory_allocated() - weights) / 2**20, 1)
        found["torch_eager"] = timed(lambda: half(*theirs), rounds)
        if compiled:
            quick = torch.compile(half, mode="reduce-overhead")
            found["torch_compile"] = timed(lambda: quick(*theirs), rounds)
    torch.cuda.empty_cache()
    start = time.perf_counter()
    shapes = {key: tuple(array.shape) for key, array in arrays.items()}
    backend = nx.hardware.get_backend("cuda")
    # As those of PyTorch's half module.
    model = backend.optimize_model(file.getvalue(), shapes, precision="fp16", io_dtype="fp16")
    found["build_s"] = round(time.perf_counter() - start, 1)
    arrays = {key: narrow(array) for key, array in arrays.items()}
    on_gpu = {key: torch.from_numpy(array).cuda() for key, array in arrays.items()}
    found["neurenix"] = timed(lambda: model.run(on_gpu), rounds)
    whole = [measure.milliseconds(lambda: model.run(arrays)) for _ in range(rounds + 5)][5:]
    found["numpy_ms"] = round(float(np.median(whole)), 4)
    found["activations_mib"] = round(model.memory_required().activations / 2**20, 1)
    report = model.report()
    found["kernels_ms"] = round(sum(row["tuned_nanoseconds"] for row in report["kernels"]) / 1e6, 4)
    found["on_cpu"] = sorted({row["kernel"] for row in report["kernels"] if row["provider"] == "cpu"})
    found["refused"] = sorted({row["reason"] for row in report["refusals"]})[:8]
    slow = sorted(report["kernels"], key=lambda row: -row["tuned_nanoseconds"])[:12]
    found["slowest"] = [
        f"{r['tuned_nanoseconds'] / 1e3:.1f} us {r['provider']} {r['kernel']} {r['implementation']}" for r in slow
    ]
    errors: dict[str, list[float]] = {"neurenix": [], "torch_eager": []}
    for seed in range(SEEDS):
        new = [torch.from_numpy(array).cuda() for array in inputs_of(entry, name, batch, seed).values()]
        with torch.inference_mode():
            want = first(exact(*[t.double() if t.is_floating_point() else t for t in new]))
            errors["torch_eager"].append(rms(first(half(*halved(new))), want))
        near = [t.half() if t.is_floating_point() else t for t in new]
        errors["neurenix"].append(rms(first(model.run(dict(zip(arrays, near, strict=True)))), want))
    found["rms"] = {who: float(f"{np.mean(all_):.3g}") for who, all_ in errors.items()}
    return found


def row(name: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    if "failed" in found:
        return f"{name:14} {found['failed'][-300:]}"
    times = [found.get(who, {}).get("median_ms", float("nan")) for who in ("torch_eager", "torch_compile", "neurenix")]
    memory = found["activations_mib"] / max(found["torch_activations_mib"], 0.1)
    return (
        f"{name:14} eager {times[0]:7.3f} compile {times[1]:7.3f} ours {times[2]:7.3f} "
        f"stream {found['neurenix']['stream_ms']:7.3f} kernels {found['kernels_ms']:7.3f} "
        f"numpy {found['numpy_ms']:7.3f} "
        f"build {found['build_s']:6.1f} s memory {memory:5.2f} "
        f"rms {found['rms']['neurenix']:.2e} / {found['rms']['torch_eager']:.2e} cpu {found['on_cpu']}"
    )


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=MODELS, help="name:batch")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--eager", action="store_true", help="leaves torch.compile out")
    parser.add_argument("--timeout", type=float, default=200, help="seconds for each model")
    parser.add_argument("--alone", help="runs one model in this process, and prints JSON")
    options = parser.parse_args()
    if options.alone:
        name, batch = options.alone.split(":")
        print("RESULT " + json.dumps(one(name, int(batch), options.rounds, not options.eager)))
        return
    import torch

    file = measure.RESULTS / "cuda.json"
    results = json.loads(file.read_text()).get("results", {}) if file.exists() else {}
    for key in options.models:
        kept = {name: value for name, value in results.get(key, {}).items() if name == "torch_compile"}
        command = [sys.executable, "-m", "benchmarks.bench_cuda", "--alone", key, "--rounds", str(options.rounds)]
        command += ["--eager"] if options.eager else []
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
        except subprocess.TimeoutExpired:
            results[key] = {"failed": f"more than {options.timeout} s"}
        else:
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            results[key] = kept | json.loads(lines[0][7:]) if lines else {"failed": done.stderr[-2000:]}
        print(row(key, results[key]), flush=True)
        measure.write("cuda", results, {"rounds": options.rounds, "device": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
