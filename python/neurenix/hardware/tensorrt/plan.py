"""Plans of NVIDIA's own TensorRT: built here, for its runtime."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neurenix import _native, shapes
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware.options import PRECISIONS, check
from neurenix.hardware.tensorrt.logger import Logger
from neurenix.hardware.tensorrt.plan_engine import PlanEngine, opened
from neurenix.importers.dispatch import to_network

#: A shape in which -1 comes with a call.
Extents = tuple[int, ...]
#: Told of each step: the phase, the steps done, and the steps in all (0 where that is not known); False ends the build.
Progress = Callable[[str, int, int], Any]


class PlanPort(NamedTuple):
    """An input or output: its name, TensorRT's name of its dtype, its shape.

    An input has for each profile its least, expected and greatest shape.
    """

    name: str
    dtype: str
    shape: Extents
    profiles: tuple[tuple[Extents, Extents, Extents], ...] = ()


class Refusal(NamedTuple):
    """A layer that is not in a plan, why, and the way out."""

    layer: str
    reason: str
    hint: str


class TensorRTPlan:
    """What TensorRT's builder made of a model.

    Its bytes are code for a GPU: whoever runs them trusts whoever built them.
    """

    def __init__(self, plan: _native.TensorRTPlan) -> None:
        self._plan = plan

    @property
    def data(self) -> bytes:
        """The plan, as TensorRT's runtime reads it."""
        return self._plan.data

    @property
    def inputs(self) -> tuple[PlanPort, ...]:
        """The inputs, in order."""
        return tuple(
            PlanPort(name, dtype, tuple(shape), tuple((tuple(a), tuple(b), tuple(c)) for a, b, c in profiles))
            for (name, dtype, shape), profiles in self._plan.inputs
        )

    @property
    def outputs(self) -> tuple[PlanPort, ...]:
        """The outputs, in order."""
        return tuple(PlanPort(name, dtype, tuple(shape)) for name, dtype, shape in self._plan.outputs)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The layers that TensorRT did not take."""
        return tuple(Refusal(*row) for row in self._plan.refusals)

    @property
    def layers(self) -> int:
        """How many layers of the simplified network are in the plan."""
        return self._plan.layers[0]

    def open(self, logger: Logger | None = None) -> PlanEngine:
        """The plan in the hands of TensorRT's runtime. Whoever has built a plan in this process may trust it.

        Raises `DeviceError` where this machine can't run it, with what TensorRT said.
        """
        return opened(self.data, logger)

    @property
    def library(self) -> tuple[str, str, str]:
        """The library that built it: its file, its version, the headers that describe it."""
        return self._plan.library

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file, which appears whole or not at all and is the user's own.

        Raises `OSError` if it can't be written.
        """
        _write(Path(path), self.data)

    def __repr__(self) -> str:
        ports = ", ".join(f"{port.name}: {port.dtype}{list(port.shape)}" for port in self.inputs)
        return f"<TensorRTPlan of {self.layers} layers, {len(self.data)} bytes, inputs {ports}>"


def _write(target: Path, data: bytes) -> None:
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise


class _Listener:
    """What the builder calls, from threads of its own."""

    def __init__(self, logger: Logger, progress: Progress | None) -> None:
        self._logger, self._progress = logger, progress

    def say(self, severity: str, text: str) -> None:
        self._logger.log(Logger.Severity[severity], f"[TRT] {text}")

    def step(self, phase: str, done: int, steps: int) -> bool:
        return self._progress is None or self._progress(phase, done, steps) is not False


def build_plan(
    model: Any,
    input_shapes: Any = None,
    precision: str = "fp32",
    *,
    targets: Sequence[str] = (),
    hardware_compatibility: str = "none",
    optimization_level: int = 3,
    workspace_size: int | None = None,
    refittable: bool = False,
    strip_weights: bool = False,
    version_compatible: bool = False,
    weight_streaming: bool = False,
    timing_cache: str | os.PathLike[str] | None = None,
    exclude: Sequence[str] = (),
    partial: bool = False,
    input_values: Mapping[str, Any] | None = None,
    logger: Logger | None = None,
    progress: Progress | None = None,
) -> TensorRTPlan:
    """Builds a plan with the TensorRT library of this machine (`neurenix info` names it).

    `model`, `input_shapes`, `precision` and `input_values` as `TensorRTBackend.optimize_model` has them; precision is
    explicit in the graph, inputs and outputs keep the dtypes of the model. `targets`: compute capabilities such as
    "8.6", for which TensorRT-RTX builds without a GPU; none leaves the choice to the library.
    `hardware_compatibility`: "ampere+" or "same" lets the plan run on other GPUs too, of compute capability 8.0 and
    above, or of the same one. `timing_cache`: a file with what TensorRT has measured, which is read if it is there, and
    written anew; TensorRT-RTX measures nothing. `refittable`,
    `strip_weights`, `version_compatible`, `weight_streaming`: TensorRT's flags of these names, where its version has
    them. `exclude`: names of layers or ops to leave out. `partial`: layers that TensorRT does not take are cut out:
    what they read is a result of the plan, and what they give an input; they are in `refusals`. `progress(phase, done,
    steps)` is called at each step, from threads of TensorRT; False ends the build.

    Raises `DeviceError` with every place that was looked at where there is no library, and when the builder fails,
    with what it said; `UnsupportedError` with the layers that TensorRT does not take, or a flag that its version has
    not; and as the importers do.
    """
    precision = str(check("precision", precision))
    if precision not in PRECISIONS:
        raise UnsupportedError(
            "TensorRT's plans are quantized by layers of the network alone",
            got=repr(precision),
            hint="give nx.quantization.calibrate(model, data)",
        )
    level = check("optimization_level", optimization_level)
    if isinstance(targets, str) or isinstance(exclude, str):
        raise InvalidArgumentError("targets and exclude are lists of texts", got=repr(targets or exclude))
    network = to_network(model, input_shapes, dict(input_values or {}))
    names = [tensor.name for tensor in network.inputs]
    profiles = [
        {name: (s.min, s.opt, s.max) for name, s in profile.items()} for profile in shapes.profiles(input_shapes, names)
    ]
    cache = None if timing_cache is None else Path(timing_cache)
    options = {
        "compute": PRECISIONS[precision],
        "tf32": precision == "tf32",
        "optimization_level": level,
        "workspace": check("workspace_size", workspace_size),
        "refittable": refittable,
        "strip_weights": strip_weights,
        "version_compatible": version_compatible,
        "weight_streaming": weight_streaming,
        "targets": list(targets),
        "compatibility": hardware_compatibility,
        "timing_cache": cache.read_bytes() if cache is not None and cache.exists() else b"",
        "exclude": list(exclude),
        "partial": partial,
    }
    listener = _Listener(logger or Logger(), progress)
    built = _native.TensorRTPlan.build(network, profiles, options, listener)
    if cache is not None and built.timing_cache:
        _write(cache, built.timing_cache)
    return TensorRTPlan(built)
