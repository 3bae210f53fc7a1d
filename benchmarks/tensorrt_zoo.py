"""The zoo through TensorRT's own builder: which share of the layers does it take, and why not the others?

    python -m benchmarks.tensorrt_zoo --models resnet50 bert --target 8.6

Needs a TensorRT library (`pip install "tensorrt-rtx-cu13-libs>=1.7"`) and, with TensorRT-RTX, no GPU. Each model and
exporter is a process of its own; every named dimension is dynamic, in a profile that holds the zoo's sizes. What
TensorRT refuses is cut out of the network, and the rest is built. Prints a table and writes
benchmarks/results/tensorrt_zoo.json, where other models keep what an earlier run with the same settings found. The last
row is a convolution with int8 weights and activations.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.zoo import EXPORTERS, FILES, earlier, export

OUTPUT = "tensorrt_zoo"
QUANTIZED = "conv_w8a8"


def source(name: str, exporter: str, folder: Path) -> tuple[Any, dict[str, Any]] | str:
    """The model and its profile, or why there is none."""
    from neurenix import Shape

    if name == QUANTIZED:
        return quantized(), {"x": Shape((1, 16, 32, 32), (4, 16, 32, 32), (8, 16, 32, 32))}
    if name in FILES:
        import rapidocr_onnxruntime

        stem, shapes = FILES[name]
        path = Path(rapidocr_onnxruntime.__file__).parent / "models" / f"{stem}.onnx"
        sizes = [{"x": shape} for shape in shapes]
    else:
        from benchmarks.zoo_models import ZOO

        exported = export(name, exporter, folder)
        if "error" in exported:
            return str(exported["error"])
        path = folder / exporter / f"{name}.onnx"
        entry = ZOO[name]
        sizes = [{key: x.at(size) for key, x in entry.inputs.items()} for size in entry.sizes]
    profile = {}
    for key in sizes[0]:
        shapes_of = [shape[key] for shape in sizes]
        least, greatest = (tuple(map(f, zip(*shapes_of, strict=True))) for f in (min, max))
        profile[key] = Shape(least, shapes_of[0], greatest)
    return path, profile


def quantized() -> Any:
    """A convolution of int8: Quantize and Dequantize around both operands, symmetric, weights per channel."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    constants = {
        "scale": np.array(0.05, np.float32),
        "zero": np.array(0, np.int8),
        "weights": rng.integers(-127, 128, (32, 16, 3, 3)).astype(np.int8),
        "weight_scale": rng.uniform(0.001, 0.01, 32).astype(np.float32),
        "weight_zero": np.zeros(32, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["xq"], "quantize"),
        helper.make_node("DequantizeLinear", ["xq", "scale", "zero"], ["xd"], "dequantize"),
        helper.make_node("DequantizeLinear", ["weights", "weight_scale", "weight_zero"], ["w"], "unpack", axis=0),
        helper.make_node("Conv", ["xd", "w"], ["y"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16, 32, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32, 32, 32])
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, QUANTIZED, [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def one(name: str, exporter: str, folder: Path, target: str, precision: str) -> dict[str, Any]:
    """Everything about one model and exporter, in this process."""
    from neurenix.hardware.tensorrt.plan import build_plan

    found = source(name, exporter, folder)
    if isinstance(found, str):
        return {"export": found}
    model, profile = found
    start = time.perf_counter()
    try:
        plan = build_plan(model, profile, precision, targets=[target], partial=True)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    layers = plan.layers + len(plan.refusals)
    reasons = collections.Counter(generic(refusal.reason) for refusal in plan.refusals)
    return {
        "layers": layers,
        "taken": plan.layers,
        "share": round(100 * plan.layers / layers, 1),
        "refusals": dict(reasons.most_common()),
        "plan_mib": round(len(plan.data) / 2**20, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "library": plan.library[1:],
    }


def generic(reason: str) -> str:
    """A reason without the names of one model, and without what comes behind TensorRT's first sentence."""
    first = re.sub(r"\s*\([^()]*\)$", "", reason.split(";")[0])
    return re.sub(r"""(["'])[^"']*\1""", "...", first)[:300]


def row(name: str, exporter: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    head = f"{name:16} {exporter:11}"
    for key, text in (("export", "torch can't export"), ("failed", "FAILED"), ("died", "DIED")):
        if key in found:
            return f"{head} {text}: {' '.join(str(found[key]).split())[:200]}"
    most = "; ".join(f"{count} {reason[:100]}" for reason, count in list(found["refusals"].items())[:3])
    taken = f"{found['taken']:5} of {found['layers']:5} {found['share']:6.1f} %"
    return f"{head} {taken} {found['plan_mib']:8.1f} MiB {found['seconds']:6.1f} s  {most}"


def run_one(name: str, exporter: str, options: argparse.Namespace) -> dict[str, Any]:
    """One model in a process of its own: what crashes takes no other with it."""
    command = [sys.executable, "-m", "benchmarks.tensorrt_zoo", "--one", name, exporter]
    for key in ("cache", "target", "precision"):
        command += [f"--{key}", str(getattr(options, key))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"died": f"longer than {options.limit} s"}
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return {"died": f"status {done.returncode}: {done.stderr[-500:]}"}


def summary(results: dict[str, Any]) -> str:
    """The share of all layers."""
    rows = [found for found in results.values() if "share" in found]
    taken, layers = (sum(found[key] for found in rows) for key in ("taken", "layers"))
    least = min(found["share"] for found in rows)
    share = f"{taken} of {layers} layers ({100 * taken / layers:.1f} %), at least {least} %"
    return f"{len(rows)} plans of {len(results)}; {share}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--exporters", nargs="+", default=list(EXPORTERS), choices=list(EXPORTERS))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "neurenix-zoo")
    parser.add_argument("--target", default="8.6", help="the compute capability to build for")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one model")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one, options.cache, options.target, options.precision)))
        return
    from benchmarks.zoo_models import ZOO

    settings = {"target": options.target, "precision": options.precision}
    results = earlier(OUTPUT, settings)
    for name in options.models or [*ZOO, *FILES, QUANTIZED]:
        for exporter in ["file"] if name in (*FILES, QUANTIZED) else options.exporters:
            found = run_one(name, exporter, options)
            results[f"{name} {exporter}"] = found
            print(row(name, exporter, found), flush=True)
            measure.write(OUTPUT, results, settings)
    print(summary(results))


if __name__ == "__main__":
    main()
