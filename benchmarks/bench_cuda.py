"""The GPU: ours in fp16 beside PyTorch's, and how far both are from PyTorch in double precision.

    python -m benchmarks.bench_cuda --models resnet50 --batches 1 32

Ours is a whole call with numpy in and out, copies included; PyTorch's (eager) is the time on the device by CUDA events.
Writes benchmarks/results/cuda.json.
"""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np

from benchmarks import measure

#: The image size of each model of torchvision.
SIZES = {"resnet18": 224, "resnet50": 224}


def rms(got: np.ndarray, exact: np.ndarray) -> float:
    """Root of the mean square error, as a share of that of the exact numbers."""
    wide = got.astype(np.float64)
    return float(np.sqrt(((wide - exact) ** 2).mean() / (exact**2).mean()))


def on_device(module: Any, x: Any, rounds: int) -> list[float]:
    """Milliseconds of runs of a module on the device."""
    import torch

    times = []
    with torch.inference_mode():
        for _ in range(rounds + 5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            module(x)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
    return times[5:]


def one(name: str, batch: int, rounds: int) -> dict[str, Any]:
    """Everything about one model."""
    import torch
    import torchvision

    from neurenix.hardware.tensorrt import TensorRTBackend

    torch.manual_seed(0)
    module = getattr(torchvision.models, name)().eval()
    x = torch.randn(batch, 3, SIZES[name], SIZES[name])
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, dynamo=False, opset_version=17, input_names=["input"])
    with torch.inference_mode():
        exact = module.double()(x.double()).numpy()
    half, on_gpu = module.half().cuda().to(memory_format=torch.channels_last), x.half().cuda()
    with torch.inference_mode():
        theirs = half(on_gpu).float().cpu().numpy()
    backend = TensorRTBackend(timing_cache=False, verify=False)
    start = time.perf_counter()
    model = backend.optimize_model(file.getvalue(), {"input": tuple(x.shape)}, precision="fp16")
    built = time.perf_counter() - start
    inputs = {"input": x.numpy()}
    ours = next(iter(model.run(inputs).values()))
    kernels = model.report()["kernels"]
    calls = [measure.milliseconds(lambda: model.run(inputs)) for _ in range(rounds + 5)][5:]
    return {
        "build_s": round(built, 1),
        "call": measure.summary(calls),
        "kernels_ms": round(sum(row["tuned_nanoseconds"] for row in kernels) / 1e6, 4),
        "on_cpu": sorted({row["kernel"] for row in kernels if row["provider"] == "cpu"}),
        "torch_eager": measure.summary(on_device(half, on_gpu.to(memory_format=torch.channels_last), rounds)),
        "rms": {"neurenix": rms(ours, exact), "torch_eager": rms(theirs, exact)},
    }


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=["resnet50"], choices=list(SIZES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    import torch

    results = {}
    for name in options.models:
        for batch in options.batches:
            found = results[f"{name} b{batch}"] = one(name, batch, options.rounds)
            print(name, batch, found, flush=True)
    measure.write("cuda", results, {"rounds": options.rounds, "device": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
