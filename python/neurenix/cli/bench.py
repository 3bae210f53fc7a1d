"""Measures a model in trtexec's words; `--against` runs other engines in turns with it, in the same process."""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neurenix import __version__, _native
from neurenix.cli import plot, progress, remote
from neurenix.cli.common import (
    add_model_arguments,
    amount,
    as_asked,
    count,
    given_shapes,
    inputs_for,
    optimize,
    write_file,
    write_json,
)
from neurenix.cli.measure import PERCENTILES, Runners, Times, measure
from neurenix.cli.models import is_engine, load_given
from neurenix.cli.peers import Peer, relative_error
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.optimized import OptimizedModel, Profile, describe_memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_model_arguments(parser)
    parser.add_argument("--iterations", type=count, help="timed calls, at least 10 (as many as --duration allows)")
    parser.add_argument("--duration", type=amount, default=3.0, help="seconds, without --iterations (3)")
    parser.add_argument("--warmup", "--warmUp", type=amount, default=200, help="milliseconds of untimed calls (200)")
    parser.add_argument("--percentile", default="90,95,99", metavar="P,...", help="of the latency (90,95,99)")
    parser.add_argument(
        "--load-inputs", "--loadInputs", nargs="+", default=[], metavar="NAME:FILE", help="not random ones"
    )
    parser.add_argument("--against", default="", metavar="NAMES", help="keras,onnxruntime,openvino,tensorflow,torch")
    parser.add_argument(
        "--torch-module", metavar="MODULE", help="for --against torch: package.module:factory, or a .pt2 file"
    )
    parser.add_argument("--profile", "--dumpProfile", action="store_true", help="print the time of each layer")
    parser.add_argument("--export-times", "--exportTimes", metavar="FILE", help="write each call, as trtexec does")
    parser.add_argument("--export-profile", "--exportProfile", metavar="FILE", help="write the time of each layer")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw how often each latency was seen")
    remote.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; 1 when what was asked for did not come about."""
    percentiles = _percentiles(arguments.percentile)
    _check(arguments)
    if arguments.url:
        return remote.run(arguments, percentiles)
    source = load_given(arguments)
    begin = time.perf_counter()
    model = optimize(arguments, source)
    built = time.perf_counter() - begin
    inputs = inputs_for(arguments, model)
    begin = time.perf_counter()
    outputs = model(inputs)
    first = time.perf_counter() - begin
    names = [name for name in arguments.against.split(",") if name]
    peers = [Peer.of(name, source, inputs, arguments) for name in names]
    errors = {peer.name: max(map(relative_error, outputs.values(), peer.outputs()), default=0.0) for peer in peers}
    runners: Runners = {"neurenix": lambda: model(inputs)} | {p.name: p.run for p in peers}
    with progress.step("measuring") as tell:
        times = measure(runners, arguments.warmup / 1e3, arguments.duration, arguments.iterations, tell)
    batch = next((array.shape[0] for array in inputs.values() if array.ndim), 1)
    found = {name: Times.of(t, batch, percentiles) for name, t in times.items()}
    content = _content(arguments, model, built, first, found)
    content["versions"] = {"neurenix": __version__} | {peer.name: peer.version for peer in peers}
    content["relative_error"] = errors
    profile = model.profile(inputs) if arguments.profile or arguments.export_profile else None
    if profile is not None:
        content["profile"] = profile.records()
    _files(arguments, found, profile)
    if not write_json(arguments.json, content):
        _print(content, found["neurenix"])
        if arguments.profile:
            print(profile)
        print(f"&&&& {'PASSED' if content['passed'] else 'FAILED'} neurenix bench {arguments.model}")
    return 0 if content["passed"] else 1


def _check(arguments: argparse.Namespace) -> None:
    """Refuses numbers that nothing can be measured with."""
    for name, least in (("iterations", 1), ("duration", 0), ("warmup", 0)):
        value = getattr(arguments, name)
        if value is not None and not value >= least:
            raise InvalidArgumentError(f"--{name} is too small", expected=f"{least} or more", got=f"{value:g}")


def _percentiles(text: str) -> Sequence[float]:
    try:
        found = [float(word) for word in text.split(",") if word]
    except ValueError:
        found = [-1.0]
    if not all(0 <= p <= 100 for p in found):
        raise InvalidArgumentError("the percentiles can't be read", expected="90,95,99", got=text)
    return found or PERCENTILES


def _files(arguments: argparse.Namespace, found: dict[str, Times], profile: Profile | None) -> None:
    if arguments.export_times:
        write_file(arguments.export_times, json.dumps(found["neurenix"].records(), indent=1) + "\n")
    if arguments.export_profile and profile is not None:
        # trtexec's own form: the number of runs first, then the layers.
        runs: list[dict[str, Any]] = [{"count": profile.runs}]
        write_file(arguments.export_profile, json.dumps(runs + profile.records(), indent=1) + "\n")
    if arguments.plot:
        samples = {name: times.samples for name, times in found.items()}
        write_file(arguments.plot, plot.latencies(samples, f"{Path(arguments.model).name}, {arguments.precision}"))


def _content(
    arguments: argparse.Namespace, model: OptimizedModel, built: float, first: float, times: dict[str, Times]
) -> dict[str, Any]:
    report = model.report()
    memory = model.memory_required()
    ours = times["neurenix"].latency_ms["median"]
    return {
        "model": arguments.model,
        "engine_file": is_engine(arguments.model),
        "shapes": given_shapes(arguments),
        "precision": report["precision"],
        "passed": as_asked(model, report["precision"]),
        "threads": arguments.threads or _native.default_threads(),
        "device": _native.device("cpu"),
        "providers": dict(report["providers"]),
        "layers_per_dtype": report["layers_per_dtype"],
        "fallbacks": report["fallbacks"],
        "notes": report["notes"],
        "warnings": list(times["neurenix"].warnings()),
        "engine_bytes": Path(arguments.model).stat().st_size if is_engine(arguments.model) else None,
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


def _print(content: dict[str, Any], ours: Times) -> None:
    memory = content["memory"]
    if content["engine_file"]:
        print(f"Engine of {content['engine_bytes'] / 2**20:.4g} MiB deserialized in {content['build_s']:.3f} sec.")
    else:
        print(f"Engine built in {content['build_s']:.3f} sec.")
    print(
        f"First call: {content['first_call_ms']:.3f} ms, precision {content['precision']}, {content['threads']} threads"
    )
    print("Providers: " + ", ".join(f"{name} ({count} layers)" for name, count in content["providers"].items()))
    if not content["passed"]:
        print(f"Error: no layer computes in {content['precision']}")
    print(
        f"Memory: weights {describe_memory(memory['weights'])}, activations {describe_memory(memory['activations'])} "
        f"({memory['reuse']:.0%} saved by reuse), peak host {describe_memory(memory['peak_host_rss'])}"
    )
    print("\n".join(ours.summary()))
    for warning in content["warnings"]:
        print(f"Warning: {warning}")
    if len(content["engines"]) > 1:
        print("=== Against other engines, in turns, median ms ===")
        for name, engine in content["engines"].items():
            error = content["relative_error"].get(name)
            rest = (
                "" if error is None else f"  neurenix takes {engine['ratio']:.2f} of it, outputs differ by {error:.1e}"
            )
            print(f"{name} {content['versions'][name]}: {engine['latency_ms']['median']:.3f}{rest}")
