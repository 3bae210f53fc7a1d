"""Backends: the same calls, wherever the work is done."""

from __future__ import annotations

import os
import platform
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from neurenix import _native, shapes
from neurenix._native import Network
from neurenix.errors import DeviceError, Error, InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.hardware import conversions, probe, samples
from neurenix.hardware.dry_run import DryRun
from neurenix.hardware.optimized import OptimizedModel
from neurenix.hardware.options import BUILT_IN, Options, computed, eight_bits_of, is_in_floats
from neurenix.importers.dispatch import takes_shapes, to_network, with_shapes
from neurenix.importers.files import WITH_ENGINES
from neurenix.log import LOG
from neurenix.packages import install

#: The providers that each backend tries, the preferred one first.
CHAINS = {"tensorrt": BUILT_IN, "cuda": ("cuda", "cpu"), "cpu": ("cpu",)}
#: The backend of everyday calls, which asks for the best provider that there is rather than for one of a name.
DEFAULT = "tensorrt"

#: What providers need that can be installed, where their reasons do not say so.
INSTALL = {"tensorrt": f"install NVIDIA's driver and TensorRT ({install('tensorrt')}, or {install('tensorrt_rtx')})"}


class DeviceInfo(dict[str, Any]):
    """What is known of a device: a dict, and its entries as attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Backend:
    """Optimises models and runs them, on the GPU of the number `device` where there are several.

    A provider that can't run here is passed over for the next one, and `report()` says why. So does the log: a warning
    where the provider was named (`providers=`, the backend "cuda") or where a GPU stays idle, else information.
    `fallback=False` uses the provider of the backend's name and no other. `options` are those of `optimize_model`, and
    its defaults.
    """

    name = "cpu"

    def __init__(self, device: int = 0, fallback: bool = True, **options: Any) -> None:
        if isinstance(device, bool) or not isinstance(device, int) or device < 0:
            raise InvalidArgumentError("device is the number of a GPU", expected="0, 1, ...", got=repr(device))
        self.device = device
        self.fallback = fallback
        Options.of(**options)
        self._options = options

    def initialize(self) -> bool:
        """Whether some provider can run here.

        Raises `DeviceError` (a RuntimeError), which names what is missing and what to install, when `fallback=False`
        and this backend's provider can't.
        """
        self._choose(Options.of(**self._options))
        return True

    def _choose(self, options: Options) -> tuple[list[str], list[probe.State]]:
        if self.device >= self.get_device_count():
            raise self._no_such_device(self.device)
        allowed = _native.allowed_providers()
        chain = CHAINS[self.name] if self.fallback else CHAINS[self.name][:1]
        wanted = [p for p in options.providers or chain if p in allowed]
        chosen, refused = probe.choose(wanted, self.device)
        # What stands behind the preferred provider by itself need not be there; what the user lists must.
        if options.strict and refused and (options.providers is not None or refused[0].provider == wanted[0]):
            chosen = []
        if not chosen:
            raise DeviceError(
                f"{' and '.join(s.provider for s in refused) or 'no provider'} can't run here"
                if refused
                else "no provider may be used",
                expected=", ".join(options.providers or chain),
                got="; ".join(s.cause for s in refused) or f"NEURENIX_PROVIDERS={','.join(allowed)}",
                hint="; or ".join(_ways_out(refused, options.strict)),
            )
        named = options.providers is not None or self.name != DEFAULT
        probe.tell(chosen, refused, wanted[0] if named else None)
        return chosen, refused

    def get_device_count(self) -> int:
        """GPUs that a provider sees; on a machine where none does, the CPU counts as one device."""
        return self._gpus() or 1

    def _gpus(self) -> int:
        seen = {"tensorrt", "cuda"}.intersection(CHAINS[self.name], _native.allowed_providers())
        return _native.gpu_count() if seen else 0

    def _no_such_device(self, index: object) -> InvalidArgumentError:
        gpus = self._gpus()
        return InvalidArgumentError(
            "there is no such device",
            expected=f"0 to {gpus - 1}" if gpus else "0, the processor",
            got=repr(index),
            hint=None if gpus or self.name == "cpu" else f"no GPU can be used here: {probe.state('cuda').cause}",
        )

    def get_device_info(self, index: int = 0) -> DeviceInfo:
        """What is known of a device.

        Raises `InvalidArgumentError` for an index from `get_device_count()` on, and `DeviceError` for a GPU that can't
        be used.
        """
        if not isinstance(index, int) or not 0 <= index < self.get_device_count():
            raise self._no_such_device(index)
        provider = "cuda" if self._gpus() else "cpu"
        state = probe.state("tensorrt", index)
        found = _native.gpu_info(index) if provider == "cuda" else _processor_info()
        return DeviceInfo(
            **found | {"libraries": found["libraries"] | {"neurenix": _native.__version__}},
            provider=provider,
            threads=_native.default_threads(),
            precisions=computed(provider),
            supports_tensorrt=state.available,
            reason=state.reason,
        )

    def optimize_model(
        self,
        model: Any,
        input_shapes: Any = None,
        precision: str | Collection[str] | None = None,
        workspace_size: int | None = None,
        *,
        input_values: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> OptimizedModel:
        """Makes a model ready for this machine.

        `model`: a path to .onnx, its bytes, `onnx.ModelProto`, `torch.nn.Module`, `torch.export.ExportedProgram`, a
        Keras model or .keras file, a SavedModel's folder, a frozen graph, a `tf.function`, a .tflite file,
        `neurenix.nn.Module` or `neurenix.Network`. `input_shapes`: `{"input": (1, 3, 224, 224)}`, for a range a
        `Shape(min=, opt=, max=)` or three tuples per input, a list of such dicts for several profiles; a model with
        one input takes a shape alone; models that know their shapes need none. `precision`: "fp32" (strict), "tf32",
        "bf16", "fp16", "int8" (by `calibration=`), "fp8" (likewise), "mixed", or 8 bits with the rest in 16, as
        "int8+fp16" or {"int8", "fp16"}. `input_values`: what is always
        given for some inputs of an ONNX model, such as axes and sizes; they become constants, and are no inputs any
        more. `dry_run=True` gives a table in place of a model, as the method `dry_run` does. `options`: see
        `neurenix.hardware.options.Options`.

        Raises `InvalidArgumentError` for unknown options (with the nearest name) and values, `UnsupportedError` with
        the layers that nothing here can run, `ShapeError` for shapes that do not fit, `DeviceError` when no provider
        may be used, and as the importers do.
        """
        words = dict(options)
        if words.pop("dry_run", False):
            # The type is that of everyday calls; who wants the table typed calls dry_run.
            table = self.dry_run(model, input_shapes, precision, workspace_size, input_values=input_values, **words)
            return cast(OptimizedModel, table)
        wanted = self._wanted(precision, workspace_size, words)
        built = self._optimized(model, input_shapes, wanted, input_values)
        for note in built._engine.notes:
            LOG.warning("%s", note)
        return built

    def dry_run(
        self,
        model: Any,
        input_shapes: Any = None,
        precision: str | Collection[str] | None = None,
        workspace_size: int | None = None,
        *,
        input_values: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> DryRun:
        """What `optimize_model` would do: who would run each layer, why nobody before would, and about how long.

        Nothing is verified, and of each kernel the first form alone is timed (none with `optimization_level=0`). Raises
        as `optimize_model`.
        """
        wanted = self._wanted(precision, workspace_size, options)
        quick = replace(wanted, optimization_level=min(wanted.optimization_level, 1), verify=False)
        return DryRun.of(self._optimized(model, input_shapes, quick, input_values).report())

    def _wanted(
        self, precision: str | Collection[str] | None, workspace_size: int | None, options: Mapping[str, Any]
    ) -> Options:
        given = dict(self._options) | dict(options)
        if precision is not None:
            given["precision"] = precision
        if workspace_size is not None:
            given["workspace_size"] = workspace_size
        return Options.of(**given)

    def _optimized(self, model: Any, shapes: Any, wanted: Options, values: Mapping[str, Any] | None) -> OptimizedModel:
        wanted.register_plugins()
        chosen, refused = self._choose(wanted)
        if isinstance(model, OptimizedModel):
            raise InvalidArgumentError("the model is optimised already", hint="give the original model")
        native = wanted.native(chosen, self.device)
        _warm_up(native)
        wanted.check_precision()
        engine, notes = _build(model, shapes, dict(values or {}), native, wanted)
        if wanted.verify is not False and conversions.is_checkable(model):
            engine, notes = _checked(engine, notes, model, shapes, native, wanted)
        return OptimizedModel(engine, wanted.precision, refused, native, notes)

    def native_options(self, **options: Any) -> dict[str, Any]:
        """Options as the native module takes them, with the providers that can run here. Raises as `optimize_model`."""
        wanted = Options.of(**dict(self._options) | options)
        return wanted.native(self._choose(wanted)[0], self.device)

    def inference(self, model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a model once: an OptimizedModel as it is, every other one after optimising it for these inputs."""
        ready = model if isinstance(model, OptimizedModel) else self.optimize_model(model, dict(inputs))
        return ready.run(inputs)

    def load(self, path: str | os.PathLike[str], **options: Any) -> OptimizedModel:
        """Opens a saved engine; of torch's files (.ts, .pt2), those that are an engine of ours and nothing else.

        Precision, `deterministic` and profiles are those of the build, and so are `threads` (as many as there are here
        at most), `hint`, `optimization_level`, `exclude` and `workspace_size` unless `options`, or those of the
        backend, say otherwise. Nothing is timed where the device and the versions of its libraries are those of the
        build; else the engine is planned anew, with one warning that says what differs.

        Raises `FileError` when the file can't be read, `FormatError` when it is damaged, newer, or no engine,
        and `UnsupportedError` for a file of torch's with something else in it.
        """
        if Path(path).suffix in WITH_ENGINES:
            return self._load_of_torch(path, options)
        given = dict(self._options) | options
        wanted = Options.of(**given)
        wanted.register_plugins()
        chosen, refused = self._choose(wanted)
        native = wanted.opening(given, chosen, self.device)
        _warm_up(native)
        engine = _native.Engine.load(os.fspath(path), native)
        for note in engine.notes:
            LOG.warning("%s", note)
        return OptimizedModel(engine, None, refused, native)

    def _load_of_torch(self, path: str | os.PathLike[str], options: dict[str, Any]) -> OptimizedModel:
        from neurenix.torch.files import engine_of

        with tempfile.TemporaryDirectory(prefix="neurenix-") as folder:
            # What is mapped stays when its name is gone.
            engine = Path(folder) / "engine"
            engine.write_bytes(engine_of(path))
            return self.load(engine, **options)

    def save(self, model: OptimizedModel, path: str | os.PathLike[str]) -> None:
        """Saves an optimised model to a file."""
        model.save(path)


def _ways_out(refused: Sequence[probe.State], strict: bool) -> list[str]:
    hints = [state.hint or INSTALL.get(state.provider, "") for state in refused]
    allow = "allow the cpu provider, which runs everywhere"
    return [*filter(None, hints), f"{allow}, and fall backs, without `strict`" if strict else allow]


class CudaBackend(Backend):
    """Prefers our own CUDA engine."""

    name = "cuda"


def _warm_up(options: dict[str, Any]) -> None:
    """Lets libraries set up, beside what comes next, what they set up once a process; its end waits until they have."""
    given = (options["providers"], options["device"])
    worker = threading.Thread(target=_native.warm_up, args=given, name="neurenix-warm-up")
    # No thread starts when the interpreter ends: what needs the libraries sets them up itself.
    with suppress(RuntimeError):
        worker.start()


def _checked(
    engine: _native.Engine,
    notes: list[str],
    model: Any,
    input_shapes: Any,
    options: dict[str, Any],
    wanted: Options,
) -> tuple[_native.Engine, list[str]]:
    """What was built of a PyTorch model, if it gives the model's results; else what the other exporter writes, if that
    does. Raises `UnsupportedError` where neither does."""
    reason = _departure(engine, model, model, input_shapes, options, wanted)
    if reason is None:
        return engine, notes
    network = conversions.by_other_exporter(model, input_shapes, options["refittable"])
    if network is None:
        raise conversions.refusal(reason)
    engine, notes = _build_network(network, input_shapes, options, wanted)
    if _departure(engine, model, network, input_shapes, options, wanted) is not None:
        raise conversions.refusal(reason)
    return engine, [*notes, f"exported by torch's TorchScript exporter: of what the other one writes, {reason}"]


def _departure(
    engine: _native.Engine, model: Any, source: Any, input_shapes: Any, options: dict[str, Any], wanted: Options
) -> str | None:
    """What an engine that was built of `source` gives otherwise than the model of PyTorch, in float32.

    A lower precision may lose as much as an exporter: one more engine, which is not timed, tells the two apart.
    """
    reason = conversions.departure(engine, model, wanted.precision)
    if reason is None or wanted.precision == "fp32":
        return reason
    plain = options | {"compute": "float32", "tf32": False, "verify": False, "optimization_level": 0}
    exact, _ = _build(source, input_shapes, {}, plain, Options())
    return conversions.departure(exact, model, "fp32")


def _build(
    model: Any, input_shapes: Any, values: dict[str, Any], options: dict[str, Any], wanted: Options
) -> tuple[_native.Engine, list[str]]:
    """Builds with dynamic dimensions where the model has them; where they are in the way, with the given shapes."""
    network = None
    try:
        network = to_network(model, input_shapes, values, options["refittable"])
        return _build_network(network, input_shapes, options, wanted)
    except (ShapeError, UnsupportedError) as error:
        try:
            fixed = _fixed(model, network, input_shapes)
            if fixed is None:
                raise error
            network = with_shapes(model, fixed, values)
            built = _build_network(network, input_shapes, options, wanted)
        except Error:
            raise error from None
        LOG.info("dimensions of one extent are fixed, because of the model's dynamic ones: %s", error.message)
        return built


def _build_network(
    network: Network, input_shapes: Any, options: dict[str, Any], wanted: Options
) -> tuple[_native.Engine, list[str]]:
    """The engine, and what is to be said of it."""
    names = [tensor.name for tensor in network.inputs]
    given = shapes.profiles(input_shapes, names)
    profiles = [{name: (s.min, s.opt, s.max) for name, s in profile.items()} for profile in given]
    sample = samples.in_order(wanted.sample, names)
    eight_bits = eight_bits_of(wanted.precision)
    if eight_bits is None:
        notes = _stated_in_8_bits(network, options)
        return _native.Engine.build(network, profiles, options | {"samples": sample}), notes
    from neurenix.quantization import apply
    from neurenix.quantization.compare import Reference

    if eight_bits == "mixed":
        from neurenix.quantization.mixed import mixed

        given_batches = [dict(zip(names, batch, strict=True)) for batch in sample]
        return mixed(network, wanted, given_batches, profiles, options)
    tools, keep = wanted.accuracy, wanted.keep
    made, seen, notes = apply.in_8_bits(network, eight_bits, wanted.calibration, profiles, options, tools, keep)
    sample = sample or samples.in_order(seen, names)
    engine = _native.Engine.build(made, profiles, options | {"samples": sample})
    if wanted.verify is False or not sample:
        return engine, notes
    batches = [dict(zip(names, batch, strict=True)) for batch in sample]
    return engine, notes + apply.tell(wanted.precision, Reference(network, batches, profiles, options).losses(engine))


def _stated_in_8_bits(network: Network, options: dict[str, Any]) -> list[str]:
    """What is to be said of products of 8 bits that a network states itself."""
    if not is_in_floats(options["providers"][0]):
        return []
    from neurenix.quantization import apply

    return apply.stated_in_8_bits(network, options)


def _fixed(model: Any, network: Network | None, input_shapes: Any) -> dict[str, tuple[int | str, ...]] | None:
    """The shapes to fix the inputs of a model to: the dimensions of which just one extent is asked for."""
    if not takes_shapes(model):
        return None
    names = [t.name for t in network.inputs] if network is not None else _named(input_shapes)
    if isinstance(input_shapes, str) or not names:
        return None
    profiles = shapes.profiles(input_shapes, names)
    if len(profiles) != 1:
        return None
    own = {t.name: t.shape for t in network.inputs} if network is not None else {}
    fixed = {name: _fixed_dims(shape, own.get(name)) for name, shape in profiles[0].items()}
    return fixed if fixed != own else None


def _named(input_shapes: Any) -> list[str]:
    """The inputs that the shapes name; none of a shape alone, whose input only an imported model could tell."""
    given = shapes.union(input_shapes)
    return list(given) if shapes.is_by_name(given) else []


def _fixed_dims(shape: shapes.Shape, own: Sequence[int | str] | None) -> tuple[int | str, ...]:
    """The extents of a range that do not vary; the others stay as the model has them."""
    rest = own if own is not None and len(own) == len(shape.min) else [-1] * len(shape.min)
    varies = zip(shape.min, shape.max, rest, strict=True)
    return tuple(low if low == high else other for low, high, other in varies)


def _processor_info() -> dict[str, Any]:
    memory = _memory()
    return {
        "name": _processor(),
        "compute_capability": None,
        "total_memory": memory.get("MemTotal", 0),
        "free_memory": memory.get("MemAvailable", 0),
        "multiprocessors": os.cpu_count() or 1,
        "driver_version": None,
        "libraries": {"onednn": _native.onednn_version},
    }


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> dict[str, int]:
    with open("/proc/meminfo", encoding="utf-8") as file:
        rows = (line.split() for line in file)
        return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3}
