"""What optimising a model brings: PyTorch as it is, PyTorch tuned, and ours in each precision, in turns."""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from neurenix import arrays
from neurenix.cli import plot, progress
from neurenix.cli.common import Arrays, options, write_file
from neurenix.cli.measure import Times, measure
from neurenix.cli.peers import relative_error
from neurenix.errors import Error
from neurenix.hardware import get_backend
from neurenix.hardware.optimized import OptimizedModel
from neurenix.hardware.options import PRECISIONS, computed

#: What the rows are compared with.
BASELINE = "PyTorch (FP32)"
OURS = "Neurenix"

Runner = Callable[[], Any]
Runners = dict[str, Runner]


class Row(NamedTuple):
    """One configuration: median latency in ms, frames per second, how many times as fast as the first row.

    `error` is the greatest difference from PyTorch in float32 over its greatest value; None where there is no PyTorch.
    """

    configuration: str
    latency_ms: float
    fps: float
    speedup: float
    error: float | None


class Table(NamedTuple):
    """The rows; `str()` is the table in Markdown, `notes` say why a row is missing."""

    rows: Sequence[Row]
    notes: Sequence[str]

    def records(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"rows": [row._asdict() for row in self.rows], "notes": list(self.notes)}

    def __str__(self) -> str:
        head = "| Configuration | Latency (ms) | Throughput (FPS) | Speedup | Error |"
        lines = [
            f"| {row.configuration} | {row.latency_ms:.3f} | {row.fps:.1f} | {row.speedup:.1f}x "
            f"| {'-' if row.error is None else f'{row.error:.1e}'} |"
            for row in self.rows
        ]
        return "\n".join([head, "|---|---|---|---|---|", *lines, *(f"not measured: {note}" for note in self.notes)])


def measured(
    source: Any, model: OptimizedModel, precision: str, inputs: Arrays, arguments: argparse.Namespace
) -> Table:
    """The table for a model that was exported in one precision; the others are built here, and not kept."""
    runners: Runners = {}
    notes: list[str] = []
    torch_runs = _torch(source, inputs, arguments, notes)
    runners |= torch_runs
    for name in _precisions(arguments, precision):
        built = model if name == precision else _built(source, name, inputs, arguments, notes)
        if built is not None:
            runners[f"{OURS} {name.upper()}"] = partial(built, inputs)
    expected = [arrays.to_numpy(value) for value in torch_runs[BASELINE]()] if torch_runs else None
    errors = {name: _error(run(), expected) for name, run in runners.items()}
    with progress.step("measuring") as tell:
        times = measure(runners, 0.2, 0, max(1, arguments.benchmark_iterations), tell)
    batch = next((array.shape[0] for array in inputs.values() if array.ndim), 1)
    found = {name: Times.of(seconds, batch) for name, seconds in times.items()}
    if arguments.plot:
        samples = {name: one.samples for name, one in found.items()}
        write_file(arguments.plot, plot.latencies(samples, str(arguments.model)))
    first = next(iter(found.values())).latency_ms["median"]
    rows = [
        Row(name, one.latency_ms["median"], 1e3 * batch / one.latency_ms["median"],
            first / one.latency_ms["median"], errors[name])
        for name, one in found.items()
    ]  # fmt: skip
    return Table(rows, notes)


def _precisions(arguments: argparse.Namespace, exported: str) -> list[str]:
    providers = get_backend(arguments.backend).native_options(**options(arguments))["providers"]
    able = {precision for provider in providers for precision in computed(provider)} | {exported}
    return [name for name in PRECISIONS if name in able] + [exported] * (exported not in PRECISIONS)


def _built(
    source: Any, precision: str, inputs: Arrays, arguments: argparse.Namespace, notes: list[str]
) -> OptimizedModel | None:
    shapes = {name: array.shape for name, array in inputs.items()}
    try:
        with progress.step(f"building for {precision}"):
            return get_backend(arguments.backend).optimize_model(source, shapes, precision, **options(arguments))
    except Error as error:
        notes.append(f"{OURS} {precision.upper()}: {error.message}")
        return None


def _error(outputs: Any, expected: Sequence[np.ndarray[Any, Any]] | None) -> float | None:
    if expected is None:
        return None
    values = outputs.values() if isinstance(outputs, dict) else outputs
    return max(map(relative_error, map(arrays.to_numpy, values), expected), default=0.0)


def _torch(source: Any, inputs: Arrays, arguments: argparse.Namespace, notes: list[str]) -> Runners:
    """PyTorch as it is and tuned (channels last, bfloat16), for models of PyTorch, on the GPU where there is one."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(source, torch.nn.Module):
        notes.append("PyTorch: the model is no module of it; speedups are over the first row")
        return {}
    from neurenix.importers.torch.trying import prepared

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = copy.deepcopy(source).eval().to(device)
    given = {name: torch.from_numpy(array).to(device) for name, array in inputs.items()}
    found: Runners = {BASELINE: _waited(prepared(module, given), torch, device)}
    try:
        tuned = _tuned(module, given, torch, device)
        tuned()
        found["PyTorch (channels last, BF16)"] = _waited(tuned, torch, device)
    except (Error, RuntimeError) as error:
        notes.append(f"PyTorch (channels last, BF16): {str(error).splitlines()[0]}")
    return found


def _tuned(module: Any, given: Mapping[str, Any], torch: Any, device: str) -> Runner:
    from neurenix.importers.torch.trying import prepared

    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    rank = max((tensor.dim() for tensor in given.values()), default=0)
    last = formats.get(rank, torch.contiguous_format)
    own = copy.deepcopy(module).to(memory_format=last)
    moved = {name: x.to(memory_format=formats[x.dim()]) if x.dim() in formats else x for name, x in given.items()}
    run = prepared(own, moved)

    def tuned() -> list[Any]:
        with torch.autocast(device, torch.bfloat16):
            return [value.float() if value.is_floating_point() else value for value in run()]

    return tuned


def _waited(run: Runner, torch: Any, device: str) -> Runner:
    """A call that is over when its work is."""
    if device == "cpu":
        return run

    def waited() -> Any:
        found = run()
        torch.cuda.synchronize()
        return found

    return waited
