"""OptimizedModel: what a user calls."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neurenix import _native, arrays, checkpoint, reports
from neurenix.errors import InvalidArgumentError
from neurenix.hardware import placed
from neurenix.hardware.options import COMBINED
from neurenix.hardware.probe import State
from neurenix.importers import files
from neurenix.log import LOG
from neurenix.shapes import profiles, sized

if TYPE_CHECKING:
    from neurenix.hardware.tensorrt.engine import ICudaEngine


class Port(NamedTuple):
    """An input or output: its name, element type, and shape of integers and names of dynamic dimensions."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]


class Memory(NamedTuple):
    """Bytes: of the weights, and of the activations and workspaces of one call."""

    weights: int
    activations: int

    @property
    def total(self) -> int:
        """Both."""
        return self.weights + self.activations


class OptimizedModel:
    """A model made ready for this machine. Any thread may call it, at any time.

    `model({"input": x})` and `model(input=x)` give a dict of arrays by name; `model(x)`, with an array for each input,
    gives the output, or a tuple where there are several. The arrays that come out are of the kind that went in (torch
    in, torch out), and new with each call.

    Calls raise `InvalidArgumentError` for a missing or unknown input, `DTypeError` and `ShapeError`, with what was
    expected, for an array that does not fit. Arrays are never converted silently.
    """

    def __init__(
        self,
        engine: _native.Engine,
        precision: str | None,
        fallbacks: Sequence[State] = (),
        options: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self._engine = engine
        self._run = engine.run
        self._precision = precision
        #: How it was built, for new weights: those are planned from known times, and nobody follows.
        self._options = {name: value for name, value in (options or {}).items() if name != "listener"}
        self._options["timing_cache"] = None
        self._fallbacks = tuple(fallbacks)
        self._notes = list(notes)
        self._names = tuple(name for name, _, _ in engine.inputs)
        self._placed = placed.Caller(engine)
        self._warned = False
        self._warned_degraded = False

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs, in order."""
        return tuple(Port(*port) for port in self._engine.inputs)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs, in order."""
        return tuple(Port(*port) for port in self._engine.outputs)

    @property
    def profiles(self) -> list[dict[str, tuple[int, int, int]]]:
        """For each profile the (min, opt, max) of every dynamic dimension, by name."""
        return [dict(profile) for profile in self._engine.profiles]

    @property
    def jobs(self) -> int:
        """Calls beside each other that keep what it runs on busy: 2, or with `hint="throughput"` one for each thread.

        On a GPU they are 2 in any case.
        """
        return self._engine.calls

    @property
    def engine(self) -> ICudaEngine:
        """The engine, as TensorRT's API has it."""
        from neurenix.hardware.tensorrt.engine import ICudaEngine

        return ICudaEngine(self._engine, self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or (len(args) == 1 and isinstance(args[0], Mapping)):
            if args and kwargs:
                raise InvalidArgumentError(
                    "a call has its arrays in one way",
                    expected="a dict, keywords, or arrays alone",
                    got=f"{type(args[0]).__name__} and {', '.join(kwargs)}=",
                )
            return self.run(args[0] if args else kwargs)
        if len(args) != len(self._names):
            raise InvalidArgumentError(
                "the number of arrays differs from that of the inputs",
                expected=", ".join(self._names),
                got=str(len(args)),
            )
        outputs = tuple(self.run(dict(zip(self._names, args, strict=True))).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Mapping[str, Any], stream: Any = None) -> dict[str, Any]:
        """Runs on arrays by name and gives arrays by name.

        Arrays on a GPU stay there: the work goes into the stream that their library works in, or into `stream` (an
        int, or one of torch, CuPy or cuda.core), and the call returns before it is done, as torch's own do. What is
        wrong with the data, such as an index out of range, is then raised by the next call, or by `synchronize()`.
        """
        try:
            kind = next(iter(inputs.values()), None)
        except AttributeError:
            raise InvalidArgumentError(
                "arrays are given by name", expected=f"a dict with {', '.join(self._names)}", got=type(inputs).__name__
            ) from None
        if isinstance(kind, np.ndarray):
            outputs = self._run(inputs if isinstance(inputs, dict) else dict(inputs))
        else:
            found = placed.library_of(kind)
            if found is not None and found[1] in self._placed.devices and self._placed.fits(inputs):
                outputs = self._placed.run(*found, inputs, stream)
            else:
                outputs = self._run({name: _on_host(value, name) for name, value in inputs.items()})
                outputs = {name: arrays.like(array, kind) for name, array in outputs.items()}
        self.tell_of_slow_calls()
        return outputs

    def tell_of_slow_calls(self) -> None:
        """Warns once of shapes outside of every profile, and once of calls that are slower than they could be."""
        if not self._warned and self._engine.outside:
            self._warned = True
            LOG.warning(
                "the shapes of a call lie outside of every profile (%s); it runs, but was not optimised for them",
                "; ".join(map(_profile_text, self._engine.profiles)),
            )
        if not self._warned_degraded and (degraded := self._engine.degraded) is not None:
            self._warned_degraded = True
            LOG.warning("calls are slower than they could be: %s", degraded)

    def synchronize(self) -> None:
        """Waits for the work of calls on arrays of a GPU; raises what went wrong in it."""
        self._engine.synchronize()

    def report(self, profile: Profile | None = None) -> Report:
        """What the model does on this machine: `print` it, read it as a dict, or `save("report.html")`.

        With a `profile`, the page has a timeline of what was measured.
        """
        report = Report(json.loads(self._engine.report()))
        report["precision"] = self._precision or _precision_of(self._engine.precision, report)
        report["notes"] = [*self._notes, *report["notes"]]
        report["fallbacks"] = [asdict(state) for state in self._fallbacks]
        report["device"] = _native.device("cpu")
        report["version"] = _native.__version__
        if profile is not None:
            report["profile"] = profile.records()
        return report

    def profile(self, inputs: Mapping[str, Any] | None = None, iterations: int = 10) -> Profile:
        """The time of each kernel over some runs on `inputs`, or on zeros of the opt shapes: print it, or read it."""
        given = {name: _on_host(value, name) for name, value in (self.example() if inputs is None else inputs).items()}
        self._engine.profile(given)
        runs = [self._engine.profile(given) for _ in range(max(1, iterations))]
        total = sum(nanoseconds for run in runs for _, _, nanoseconds in run) or 1
        rows = []
        for same in zip(*runs, strict=True):
            times = [nanoseconds / 1e6 for _, _, nanoseconds in same]
            share = 100 * sum(times) * 1e6 / total
            name, implementation, _ = same[0]
            rows.append(
                LayerTime(name, implementation, sum(times), statistics.mean(times), statistics.median(times), share)
            )
        return Profile(rows, len(runs))

    def example(self) -> dict[str, np.ndarray[Any, Any]]:
        """Zeros of the shapes that the model was optimised for; where the sizes of tensors depend on data, of 1 where
        inputs are open."""
        profile = next(iter(self._engine.profiles), {})
        symbols = {name: opt for name, (_, opt, _) in profile.items()}
        found = {}
        for port in self.inputs:
            found[port.name] = np.zeros(sized(port.shape, symbols), port.dtype)
        return found

    def memory_required(self, shapes: Any = None) -> Memory:
        """Bytes at these input shapes, or at those that the model was optimised for. Weights exist once.

        `shapes` is written as `optimize_model` takes it: a dict from names to tuples, or arrays, or a tuple alone for a
        model with one input; of a range the greatest counts.

        `activations` is what a call needs besides its arrays. Calls that go on beside each other need as much each;
        what calls one after another need does not add up, whatever their shapes: as much as the largest of them needs
        is kept for the next one. Asking takes no such memory.

        Raises `InvalidArgumentError` for a missing or unknown input, and `ShapeError` for a shape that does not fit.
        """
        given = self.example() if shapes is None else shapes
        asked = {name: list(shape.max) for profile in profiles(given, self._names) for name, shape in profile.items()}
        if len(asked) != len(self._names):
            raise InvalidArgumentError(
                "the shape of an input is missing", expected=", ".join(self._names), got=", ".join(asked) or "none"
            )
        _, activations = self._engine.prepare(asked)
        return Memory(json.loads(self._engine.report())["memory"]["weights"], activations)

    def update_weights(self, weights: Mapping[str, Any]) -> None:
        """Replaces weights, by the names that they have in the source model; calls that go on end with those before.

        A state dict of the module that was optimised has these names.

        All or nothing: raises `InvalidArgumentError` for a name that is not there (with the nearest), a weight that
        no layer reads any more (as of a network that `quantization.calibrate` gave, which holds codes of it), or a
        model that was not built with `refittable=True`, and `ShapeError` for another dtype or shape. What is not named
        stays as it is.
        """
        if not isinstance(weights, Mapping):
            raise InvalidArgumentError("weights are given by name", expected="a dict", got=type(weights).__name__)
        wanted = (name for name in weights if name.rpartition(".")[2] not in checkpoint.COUNTERS)
        given = {name: arrays.to_numpy(weights[name]) for name in wanted}
        self._engine = self._engine.refit(given, self._options)
        self._run = self._engine.run
        self._placed = placed.Caller(self._engine)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the engine to a file, which appears whole or not at all; `TensorRTBackend.load` opens it.

        With the ending ".ts" it is TorchScript, with ".pt2" a program of `torch.export`: after `import neurenix.torch`,
        `torch.jit.load` and `torch.export.load` open these.

        Raises `InvalidArgumentError` for the ending of a model (.onnx, .pt, ...), and `FileError` when it can't be
        written.
        """
        files.check_engine_name(Path(path))
        if Path(path).suffix in files.WITH_ENGINES:
            from neurenix.torch.files import save

            save(self, path)
        else:
            self._engine.save(os.fspath(path))

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(_port_text, ports)) for ports in (self.inputs, self.outputs))
        return f"OptimizedModel({inputs} -> {outputs})"


def _on_host(value: Any, name: str) -> Any:
    """Arrays of a GPU are copied: the model may run elsewhere."""
    if arrays.is_torch(value):
        if value.device.type == "cpu":
            return value
        try:
            return arrays.settled(value).detach().cpu()
        except InvalidArgumentError as error:
            error.tensor = name
            raise
    return value.get() if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get") else value


def _port_text(port: Port) -> str:
    return f"{port.name}: {port.dtype}[{', '.join(map(str, port.shape))}]"


def _profile_text(profile: Mapping[str, tuple[int, int, int]]) -> str:
    return ", ".join(f"{name} {low} to {high}" for name, (low, _, high) in profile.items()) or "none"


class Report(dict[str, Any]):
    """What an engine does: providers, refusals, kernels, dtypes, memory, build time. A dict; `str()` is for people.

    `graph` has the layers before and after optimisation, `memory["blocks"]` what lies in the arena when.
    """

    def save(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Writes it to a file: .html is a page to look at, which needs nothing else, .json the dict.

        Raises `InvalidArgumentError` for another ending, and `FileError` when the file can't be written.
        """
        reports.save(self, path, title)

    def without_graph(self) -> Report:
        """The report but for the graphs, which are long."""
        return Report({name: value for name, value in self.items() if name != "graph"})

    def head(self) -> list[str]:
        """The report line by line, but for the kernels."""
        memory = self["memory"]
        return [
            f"precision {self['precision']}, layers per dtype: {_shares(self['layers_per_dtype'])}; "
            f"arithmetic: {_shares(self['arithmetic_per_dtype'])}",
            f"threads: {self['threads']['call']} a call, {self['threads']['calls']} calls at once"
            + (", deterministic: nothing was timed" if self["deterministic"] else ""),
            "providers: " + ", ".join(f"{name} {count} layers" for name, count in self["providers"]),
            *(f"not {state['provider']}: {state['reason']}" for state in self["fallbacks"]),
            *(f"{r['provider']} refuses {r['layer']}: {r['reason']} {r['hint']}".rstrip() for r in self["refusals"]),
            *(_kept_text(kept) for kept in self["full_precision"]),
            *(f"note: {note}" for note in self["notes"]),
            f"memory: weights {describe_memory(memory['weights'])}, activations {describe_memory(memory['arena'])} "
            f"({memory['reuse']:.0%} saved by reuse)",
            f"built in {self['build_seconds']:.2f} s"
            + (f", {verified:.2f} of them verification" if (verified := self["verify_seconds"]) else ""),
        ]

    def __str__(self) -> str:
        kernels = (f"  {line}" for kernel in self["kernels"] for line in (_kernel_text(kernel), *_inside(kernel)))
        return "\n".join([*self.head(), *kernels])


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{dtype} {share:.0%}" for dtype, share in shares.items())


#: A line names so many layers.
_NAMED = 4


def _kept_text(kept: Mapping[str, Any]) -> str:
    names = kept["layers"]
    more = ", ..." if len(names) > _NAMED else ""
    layers = f"{len(names)} layer{'s' * (len(names) > 1)}"
    return (
        f"float32 all the same: {layers}, {kept['arithmetic']:.1%} of the arithmetic "
        f"({', '.join(names[:_NAMED])}{more}): {kept['reason']}"
    )


def describe_memory(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 2**20:.1f} MiB" if count >= 1 << 20 else f"{count / 2**10:.1f} KiB"


def _kernel_text(kernel: Mapping[str, Any]) -> str:
    time = f"{kernel['tuned_nanoseconds'] / 1e3:9.1f} us" if kernel["tuned_nanoseconds"] else " " * 12
    what = kernel["implementation"] or "in place"
    return f"{time}  {kernel['kernel']:<24} {kernel['provider']}: {what}  [{' + '.join(kernel['layers'])}]"


def _inside(kernel: Mapping[str, Any]) -> list[str]:
    """What a compiler that is not ours made of a kernel's layers, a line for each."""
    layers = (kernel["details"] or {}).get("Layers", [])
    return [f"{'':>12}    {layer if isinstance(layer, str) else layer.get('Name', '')}" for layer in layers]


@dataclass(frozen=True)
class LayerTime:
    """The time of one kernel: total, mean and median in milliseconds, and its share in percent."""

    name: str
    implementation: str
    time_ms: float
    average_ms: float
    median_ms: float
    percentage: float


class Profile(list[LayerTime]):
    """The times of all kernels over some runs, in order. A list; `str()` is trtexec's table."""

    def __init__(self, rows: Iterable[LayerTime] = (), runs: int = 1) -> None:
        super().__init__(rows)
        self.runs = runs

    def records(self) -> list[dict[str, Any]]:
        """The rows as trtexec's `--exportProfile` names them."""
        return [
            {"name": r.name, "timeMs": r.time_ms, "averageMs": r.average_ms, "medianMs": r.median_ms}
            | {"percentage": r.percentage, "implementation": r.implementation}
            for r in self
        ]

    def __str__(self) -> str:
        head = f"{'Time(ms)':>10} {'Avg.(ms)':>10} {'Median(ms)':>11} {'Time(%)':>8}  Layer"
        rows = (
            f"{r.time_ms:10.3f} {r.average_ms:10.4f} {r.median_ms:11.4f} {r.percentage:8.1f}"
            f"  {r.name} ({r.implementation})"
            for r in self
        )
        total = sum(r.average_ms for r in self)
        return "\n".join([head, *rows, f"{'':>10} {total:10.4f} {'':>11} {100.0:8.1f}  Total"])


def _precision_of(floats: str, report: Mapping[str, Any]) -> str:
    """What an engine from a file was built for: `floats`, unless its products say that they are quantized."""
    shares = report["arithmetic_per_dtype"]
    for precision, dtype in (("int8", "int8"), ("fp8", "float8_e4m3fn")):
        # A tensor of 8 bits alone makes no such engine.
        if shares.get(dtype, 0) > 0.5 or any(name.endswith(f" with {dtype} weights") for name in shares):
            return f"{precision}+{floats}" if f"{precision}+{floats}" in COMBINED else precision
    return floats
