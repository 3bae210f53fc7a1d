"""Measures a model in trtexec's words; `--against` runs other engines in turns with it, in the same process."""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurenix import __version__, _native
from neurenix.cli.common import add_model_arguments, load_model, optimize, random_inputs, write_json
from neurenix.cli.peers import Peer, relative_error
from neurenix.hardware.optimized import OptimizedModel

PERCENTILES = (90, 95, 99)

#: Engines take turns of so many calls, so that a busy moment of the machine meets all of them.
TURN = 5
#: Seconds before each turn in which the threads of the engine before go to sleep.
PAUSE = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_model_arguments(parser)
    parser.add_argument("--iterations", type=int, help="timed calls, at least 10 (as many as --duration allows)")
    parser.add_argument("--duration", type=float, default=3.0, help="seconds, without --iterations (3)")
    parser.add_argument("--warmup", type=float, default=200, help="milliseconds of untimed calls (200)")
    parser.add_argument("--against", default="", metavar="NAMES", help="onnxruntime,openvino,torch")
    parser.add_argument(
        "--torch-module", metavar="MODULE", help="for --against torch: package.module:factory, or a .pt file"
    )
    parser.add_argument("--profile", action="store_true", help="print the time of each layer")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; 1 when that fails."""
    source = load_model(arguments.model)
    begin = time.perf_counter()
    model = optimize(arguments, source)
    built = time.perf_counter() - begin
    inputs = random_inputs(model.inputs, arguments.shapes, arguments.seed)
    begin = time.perf_counter()
    outputs = model(inputs)
    first = time.perf_counter() - begin
    names = [name for name in arguments.against.split(",") if name]
    peers = [Peer.of(name, source, inputs, arguments) for name in names]
    errors = {peer.name: max(map(relative_error, outputs.values(), peer.outputs()), default=0.0) for peer in peers}
    runners: dict[str, Callable[[], Any]] = {"neurenix": lambda: model(inputs)} | {p.name: p.run for p in peers}
    times = measure(runners, arguments.warmup / 1e3, arguments.duration, arguments.iterations)
    batch = next((array.shape[0] for array in inputs.values() if array.ndim), 1)
    content = _content(arguments, model, built, first, {name: Times.of(t, batch) for name, t in times.items()})
    content["versions"] = {"neurenix": __version__} | {peer.name: peer.version for peer in peers}
    content["relative_error"] = errors
    if not write_json(arguments.json, content):
        _print(content)
        if arguments.profile:
            print(model.profile(inputs))
        print(f"&&&& PASSED neurenix bench {arguments.model}")
    return 0


@dataclass(frozen=True)
class Times:
    """The latencies of one engine, in milliseconds, and what follows from them."""

    samples: list[float]
    walltime_s: float
    throughput_qps: float
    images_per_s: float
    latency_ms: dict[str, float]

    @classmethod
    def of(cls, seconds: Sequence[float], batch: int) -> Times:
        """From the seconds of each call."""
        total = sum(seconds)
        samples = [1e3 * s for s in seconds]
        latency = {"min": min(samples), "max": max(samples), "mean": statistics.mean(samples)}
        latency["median"] = statistics.median(samples)
        latency |= {f"percentile({p}%)": float(np.percentile(samples, p)) for p in PERCENTILES}
        rate = len(samples) / total
        return cls(samples, total, rate, rate * batch, latency)


def measure(
    runners: dict[str, Callable[[], Any]], warmup: float, duration: float, iterations: int | None
) -> dict[str, list[float]]:
    """The seconds of each call of each engine, which take turns."""
    for runner in runners.values():
        end = time.perf_counter() + warmup
        runner()
        while time.perf_counter() < end:
            runner()
    times: dict[str, list[float]] = {name: [] for name in runners}
    alone = len(runners) == 1
    begin = time.perf_counter()
    gc.collect()
    gc.disable()
    try:
        while not _enough(min(map(len, times.values())), time.perf_counter() - begin, duration, iterations):
            for name, runner in runners.items():
                if not alone:
                    time.sleep(PAUSE)
                    runner()
                for _ in range(TURN):
                    start = time.perf_counter()
                    runner()
                    times[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return {name: found[: iterations or None] for name, found in times.items()}


def _enough(count: int, elapsed: float, duration: float, iterations: int | None) -> bool:
    return count >= iterations if iterations else count >= 10 and elapsed >= duration


def _content(
    arguments: argparse.Namespace, model: OptimizedModel, built: float, first: float, times: dict[str, Times]
) -> dict[str, Any]:
    report = model.report()
    memory = model.memory_required()
    ours = times["neurenix"].latency_ms["median"]
    return {
        "model": arguments.model,
        "shapes": arguments.shapes,
        "precision": arguments.precision,
        "threads": arguments.threads or _native.default_threads(),
        "device": _native.device("cpu"),
        "providers": dict(report["providers"]),
        "layers_per_dtype": report["layers_per_dtype"],
        "fallbacks": report["fallbacks"],
        "notes": report["notes"],
        "build_s": built,
        "first_call_ms": 1e3 * first,
        "memory": {
            "weights": memory.weights,
            "activations": memory.activations,
            "reuse": report["memory"]["reuse"],
            "peak_host_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        },
        "engines": {
            name: {
                "calls": len(t.samples),
                "walltime_s": t.walltime_s,
                "throughput_qps": t.throughput_qps,
                "images_per_s": t.images_per_s,
                "latency_ms": t.latency_ms,
                "ratio": ours / t.latency_ms["median"],
            }
            for name, t in times.items()
        },
    }


def _print(content: dict[str, Any]) -> None:
    memory = content["memory"]
    print(f"Engine built in {content['build_s']:.3f} sec.")
    print(
        f"First call: {content['first_call_ms']:.3f} ms, precision {content['precision']}, {content['threads']} threads"
    )
    print("Providers: " + ", ".join(f"{name} ({count} layers)" for name, count in content["providers"].items()))
    for note in content["notes"]:
        print(f"Note: {note}")
    print(
        f"Memory: weights {memory['weights'] / 2**20:.1f} MiB, activations {memory['activations'] / 2**20:.1f} MiB "
        f"({memory['reuse']:.0%} saved by reuse), peak host {memory['peak_host_rss'] / 2**20:.0f} MiB"
    )
    ours = content["engines"]["neurenix"]
    zero = dict.fromkeys(ours["latency_ms"], 0.0)
    print("=== Performance summary ===")
    print(f"Throughput: {ours['throughput_qps']:.4g} qps ({ours['images_per_s']:.4g} images/s)")
    # A CPU has nothing to enqueue or to transfer.
    rows = (("Latency", ours["latency_ms"]), ("Enqueue Time", zero), ("H2D Latency", zero),
            ("GPU Compute Time", ours["latency_ms"]), ("D2H Latency", zero))  # fmt: skip
    for name, row in rows:
        print(f"{name}: " + ", ".join(f"{key} = {value:.4g} ms" for key, value in row.items()))
    print(f"Total Host Walltime: {ours['walltime_s']:.4g} s")
    print(f"Total GPU Compute Time: {ours['walltime_s']:.4g} s")
    if len(content["engines"]) > 1:
        print("=== Against other engines, in turns, median ms ===")
        for name, engine in content["engines"].items():
            error = content["relative_error"].get(name)
            rest = (
                "" if error is None else f"  neurenix takes {engine['ratio']:.2f} of it, outputs differ by {error:.1e}"
            )
            print(f"{name} {content['versions'][name]}: {engine['latency_ms']['median']:.3f}{rest}")
