"""Whole models: Neurenix, OpenVINO, ONNX Runtime and PyTorch, the same input, the same threads, one process per model.

    python -m benchmarks.bench_models --models resnet50 unet yolov5s --rounds 20

Prints medians, and the ratio of ours to OpenVINO's in the same precision; writes benchmarks/results/models.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import measure


def export(name: str, batch: int, folder: Path) -> tuple[Any, Any, Path]:
    """A network, an input for it, and its ONNX file as PyTorch's TorchScript exporter writes it."""
    import torch

    from benchmarks import networks

    module = networks.make(name)
    x = torch.randn(batch, *networks.NETWORKS[name][1][1:])
    path = folder / f"{name}.onnx"
    torch.onnx.export(module, (x,), path, dynamo=False, opset_version=17, input_names=["input"])
    return module, x.numpy(), path


def one(name: str, batch: int, threads: int, rounds: int) -> dict[str, Any]:
    """All peers on one network, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        module, x, path = export(name, batch, Path(folder))
        runs = {
            "neurenix f32": measure.neurenix(path, x, threads),
            "neurenix bf16": measure.neurenix(path, x, threads, "bf16"),
            "openvino f32": measure.openvino(path, x, threads),
            "openvino bf16": measure.openvino(path, x, threads, "bf16"),
            "onnxruntime f32": measure.onnxruntime(path, x, threads),
            "torch f32": measure.torch(module, x, threads),
        }
        times = measure.interleaved(runs, rounds)
    results: dict[str, Any] = {peer: measure.summary(each) for peer, each in times.items()}
    for precision in ("f32", "bf16"):
        ours, theirs = (results[f"{peer} {precision}"]["median_ms"] for peer in ("neurenix", "openvino"))
        results[f"neurenix / openvino {precision}"] = round(ours / theirs, 3)
    return results


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=["resnet50", "unet", "yolov5s", "mobilenetv3"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.batch, options.threads, options.rounds)))
        return
    results = {}
    limits = measure.limits_for_bf16()
    for name in options.models:
        command = [sys.executable, "-m", "benchmarks.bench_models", "--one", name]
        for key in ("batch", "threads", "rounds"):
            command += [f"--{key}", str(getattr(options, key))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **limits})
        results[name] = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}, batch {options.batch}, {options.threads} threads")
        for key, value in results[name].items():
            print(f"  {key:28} {value['median_ms']:9.2f} ms" if isinstance(value, dict) else f"  {key:28} {value:9.2f}")
    settings = {"batch": options.batch, "threads": options.threads, "rounds": options.rounds, "environment": limits}
    suffix = "" if options.batch == 1 else f"_b{options.batch}"
    print("written:", measure.write(f"models{suffix}", results, settings))


if __name__ == "__main__":
    main()
