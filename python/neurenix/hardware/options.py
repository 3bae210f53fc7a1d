"""The options of optimize_model and BuilderConfig: one table, checked in one place."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from neurenix import _native
from neurenix import names as naming
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware import probe, provider, samples
from neurenix.log import LOG
from neurenix.quantization.accuracy import Accuracy
from neurenix.quantization.accuracy import read as read_accuracy

#: What each precision means for float32 layers.
PRECISIONS = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
#: Precisions that are layers of the network: Quantize and Dequantize around products.
QUANTIZED = ("int8", "fp8", "mixed")
#: Precisions of products in 8 bits with the other layers in 16, as options keep them.
COMBINED = tuple(f"{eight}+{sixteen}" for eight in ("int8", "fp8") for sixteen in ("fp16", "bf16"))
#: All that `precision` may be.
WORDS = (*PRECISIONS, *QUANTIZED, *COMBINED)

#: The options that an engine file keeps, and what the native module calls them.
KEPT = {
    "threads": "threads",
    "hint": "hint",
    "optimization_level": "optimization_level",
    "exclude": "exclude",
    "workspace_size": "workspace",
}

#: What inputs and outputs may be, and numpy's and ml_dtypes' names of that.
IO_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

#: The providers of this package, the preferred one first.
BUILT_IN = ("tensorrt", "cuda", "cpu")

#: Of these, what any provider takes: weights alone, and a choice of what there is.
ANYWHERE = ("fp8", "mixed")

#: What an engine may be made for.
HINTS = ("latency", "throughput")

#: Options and values of the public API that are not there yet, and why.
LATER = {
    "target": "kernels are chosen by what they take on the machine at hand, and an engine file is planned anew where "
    "it is opened; only TensorRT-RTX's own plans are built for other GPUs, by trt.build_plan(targets=)",
}


#: Told of each step: the phase, the steps done, and the steps in all (0 where that is not known); False ends the build.
Progress = Callable[[str, int, int], Any]
#: A module to import, or the name of a plugin and its class.
Plugin = str | tuple[str, type]


@dataclass(frozen=True)
class Options:
    """How to optimise a model.

    - `precision`: "fp32" (strict), "tf32" (products of float32 round what they multiply to 11 bits, on GPUs whose
      tensor cores read that), "bf16", "fp16", "int8" (products of 8 bits, by `calibration`; without it the weights
      alone have 8 bits, which saves memory in files and no time), "fp8" (products of float8_e4m3fn by `calibration` on
      GPUs from compute capability 8.9 on; elsewhere, and without it, the weights alone have 8 bits), "mixed" (the
      fastest of int8 with the most sensitive products in float32 or 16 bits, of bf16 and fp16, and of float32 that is
      within `accuracy_budget`). "int8" or "fp8" with "fp16" or "bf16", as the text "int8+fp16" or as a set of words:
      layers other than the products of 8 bits, and what kernels do with their sums, compute in 16 bits.
    - `calibration`: for 8 bits and "mixed", a `neurenix.quantization.Calibrator`, or batches on which tensors'
      ranges are found: a batch as for `sample`, an iterable of such (a DataLoader), a folder of images, .npy or .npz.
    - `accuracy`: for "int8", alone or with 16 bits, and "mixed", with `calibration`, tools that lower the error of 8
      bits: of "equalisation", "smooth", "per_token" (which wants no calibration), "gptq" and "bias_correction" those
      to use, or a dict from names to settings (`{"smooth": {"alpha": 0.5}}`); see `neurenix.quantization.accuracy`.
    - `keep`: for 8 bits and "mixed", names of layers, or of nodes of the source model, whose products stay in floating
      point; `neurenix.quantization.sensitivity` tells which lose most in 8 bits.
    - `accuracy_budget`: for "mixed", the least signal-to-noise ratio of an output against float32 in dB, on `sample` or
      the first batches of `calibration`; None for 30. With `metric`, how much less than float32's that may be.
    - `metric`: for "mixed", a function that is given a function from a dict of arrays to a dict of arrays, and gives a
      number, the better the greater.
    - `io_dtype`: "fp32", "fp16" or "bf16", in which inputs come and outputs leave that the model has in one of these;
      None for those of the model.
    - `workspace_size`: bytes, None for what is free (the CPU needs what its kernels need; the report says how much).
    - `optimization_level`: how thoroughly kernels are timed at build. 0: not at all, rules choose; 1: the first form
      of each kernel; 2: one form for each set of layouts; 3: every form; 4 and 5: every form three times and ten times
      over.
    - `threads`: of the CPU, None for `NEURENIX_THREADS` or all cores.
    - `providers`: which may be used, the preferred one first.
    - `exclude`: for each provider the ops or layers that it must not run.
    - `strict`: a fall back raises, that of a layer, and that of all where the preferred provider can't run.
    - `verify`: whether a lowered precision is compared with float32 ("auto" or True: once, at build). Layers that lose
      too much stay float32, as few as will do, and the report names them. An engine for a PyTorch model is compared
      with the model, too, whose exporters write some operators otherwise than PyTorch computes them: the other
      exporter is tried where results differ, and the model is refused where its results differ as well.
    - `sample`: what verification runs on: an array (of a model with one input), a tuple of arrays in the order of the
      inputs, a dict of them by name, or an iterable of such, of which it takes 8 at most. Of the sizes of a profile, or
      they are not used for it. None: the first batches of `calibration`, or numbers that fit what each input seems
      to be.
    - `timing_cache`: a path, None for one in the cache directory, False for none.
    - `plugins`: what to register before the model is read: classes derived from `trt.IPluginV2`, a dict from name to
      class, names of modules to import, paths of libraries in C++ (`.so`).
    - `refittable`: whether the network and the weights are kept as they came, in files too, so that `update_weights`
      and `trt.Refitter` replace them.
    - `progress`: a function of a phase, the steps done and the steps in all, told of each step of the build, also from
      threads of a compiler that is not ours (TensorRT's builder); False ends the build.
    - `hint`: "latency", where a call uses all `threads`, or "throughput", where each call uses one of them, so that as
      many calls beside each other keep all busy: give them to an `AsyncQueue`, which starts so many by itself. Kernels
      are timed on the threads of one call. It changes nothing on a GPU.
    - `deterministic`: the same model and options, with the same versions of Neurenix and its libraries on the same
      machine, give the same kernels and the same bits of the outputs, in each build, process and call. Nothing is
      timed for that, whatever `optimization_level` says, no timing cache is read, and TensorRT, whose choices may
      differ, is left out. Other `threads` may sum in another order, and so may calls at other shapes. What plugins
      compute is theirs.
    """

    precision: str = "fp32"
    calibration: Any = None
    accuracy: Accuracy = field(default_factory=Accuracy)
    keep: tuple[str, ...] = ()
    accuracy_budget: float | None = None
    metric: Callable[[Callable[..., Any]], float] | None = None
    io_dtype: str | None = None
    workspace_size: int | None = None
    optimization_level: int = 3
    threads: int | None = None
    hint: str = "latency"
    deterministic: bool = False
    providers: tuple[str, ...] | None = None
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)
    strict: bool = False
    verify: str | bool = "auto"
    sample: Any = ()
    timing_cache: str | bool | None = None
    plugins: tuple[Plugin, ...] = ()
    refittable: bool = False
    progress: Progress | None = None

    @classmethod
    def of(cls, **given: Any) -> Options:
        """Options from keywords.

        Raises `InvalidArgumentError` for an unknown name (with the nearest one) or a value that makes no sense, and
        `UnsupportedError`, with the reason, for what is not there yet.
        """
        return cls(**{name: check(name, value) for name, value in given.items()})

    def check_precision(self, to_calibrate: str = "give calibration=") -> None:
        """Raises `InvalidArgumentError` for options of a precision that is not asked for; `to_calibrate` says how
        batches are given.
        """
        for name, value, able in (
            ("calibration", self.calibration, QUANTIZED),
            ("accuracy", self.accuracy or None, ("int8", "mixed")),
            ("keep", self.keep or None, QUANTIZED),
            ("accuracy_budget", self.accuracy_budget, ("mixed",)),
            ("metric", self.metric, ("mixed",)),
        ):
            if value is not None and eight_bits_of(self.precision) not in able:
                raise InvalidArgumentError(
                    f"`{name}` is for other precisions",
                    expected=" or ".join(f'precision="{word}"' for word in able),
                    got=repr(self.precision),
                )
        if self.accuracy.needs_calibration and self.calibration is None:
            raise InvalidArgumentError("`accuracy` goes with a calibration, and there is none", hint=to_calibrate)

    def register_plugins(self) -> None:
        """Registers the plugins, so that models and engine files find them.

        Raises `InvalidArgumentError` for what is no plugin, or where another one has its name.
        """
        if self.plugins:
            # It needs the network API, which needs this module.
            from neurenix.hardware.tensorrt.plugins.registry import register_all

            register_all(self.plugins)

    def compute(self) -> str:
        """The dtype of float32 layers."""
        return PRECISIONS[rest_of(self.precision)]

    def native(self, providers: Sequence[str], device: int = 0) -> dict[str, Any]:
        """The options as the native module takes them."""
        # Arrays come and go in the processor's memory: its provider is there even where it may run no layer.
        alone = "cpu" not in providers
        io = {} if self.io_dtype is None else {"io": IO_DTYPES[self.io_dtype]}
        return io | {
            "refittable": self.refittable,
            "device": device,
            "compute": self.compute(),
            "tf32": self.precision == "tf32",
            "threads": self.threads or _native.default_threads(),
            "hint": self.hint,
            "optimization_level": self.optimization_level,
            "deterministic": self.deterministic,
            "exclude": {name: list(kept) for name, kept in self.exclude.items()},
            "strict": self.strict or alone,
            "verify": self.verify is not False,
            "timing_cache": self._timing_cache(),
            "workspace": self.workspace_size,
            "listener": Listener(self.progress),
            "providers": [*providers, "cpu"] if alone else list(providers),
        }

    def opening(self, given: Mapping[str, Any], providers: Sequence[str], device: int = 0) -> dict[str, Any]:
        """As `native`, for an engine file: of what the file says of its build, that alone which is `given`."""
        kept = {native for option, native in KEPT.items() if given.get(option) is None}
        return {name: value for name, value in self.native(providers, device).items() if name not in kept}

    def _timing_cache(self) -> str | None:
        if isinstance(self.timing_cache, str):
            return self.timing_cache
        folder = _native.cache_dir()
        if self.timing_cache is False or folder is None:
            return None
        path = Path(folder)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            # A home that can't be written to: times are measured anew.
            return None
        return str(path / "timing.cache")


class Listener:
    """What compilers that are not ours call: messages go to the log, steps to whoever asked for them."""

    #: What fails in such a compiler is done by other providers, so its errors are no errors of the build.
    _LEVELS: ClassVar = {"INTERNAL_ERROR": logging.WARNING, "ERROR": logging.WARNING, "WARNING": logging.INFO}

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress

    def say(self, severity: str, text: str) -> None:
        """Takes a message."""
        LOG.log(self._LEVELS.get(severity, logging.DEBUG), "[TRT] %s", text)

    def step(self, phase: str, done: int, steps: int) -> bool:
        """Takes a step, and says whether to go on."""
        return self._progress is None or self._progress(phase, done, steps) is not False


def eight_bits_of(precision: str) -> str | None:
    """The word of a precision that is about 8 bits: "int8", "fp8" or "mixed"; None where it is of floats alone."""
    word = precision.partition("+")[0]
    return word if word in QUANTIZED else None


def rest_of(precision: str) -> str:
    """The word of a precision that says what float32 layers compute in."""
    word = precision.rpartition("+")[2]
    return "fp32" if word in QUANTIZED else word


def is_among(precision: str, found: Collection[str]) -> bool:
    """Whether each word of a precision is one of these, or one that any provider takes."""
    return all(word in found or word in ANYWHERE for word in precision.split("+"))


def names() -> list[str]:
    """The options that there are."""
    return [f.name for f in fields(Options)]


def computed(provider: str) -> list[str]:
    """The precisions that a provider has arithmetic for on this machine."""
    floats = [p for p, dtype in PRECISIONS.items() if _native.computes(provider, p if p == "tf32" else dtype)]
    narrow = [("int8", has_int8), ("fp8", has_fp8)]
    return floats + [word for word, has in narrow if has(provider)]


def has_int8(provider: str) -> bool:
    """Whether a provider has kernels for products of integers of 8 bits on this machine."""
    return provider in BUILT_IN and _native.computes(provider, "int8")


def is_in_floats(provider: str) -> bool:
    """Whether a provider computes products of 8 bits in floats; before a region is built, TensorRT does not."""
    return provider != "tensorrt" and not has_int8(provider)


def has_fp8(provider: str) -> bool:
    """Whether a provider has kernels for products of float8_e4m3fn on this machine."""
    return provider in BUILT_IN and _native.computes(provider, "float8_e4m3fn")


def check(name: str, value: Any) -> Any:
    """The value of an option in its final form; raises as `Options.of`."""
    if name in LATER:
        raise UnsupportedError(f"the option {name!r} is not supported: {LATER[name]}", hint="leave it out")
    if name not in _CHECKS:
        raise InvalidArgumentError(
            f"there is no option {name!r}", expected=", ".join(_CHECKS), hint=_meant_option(name)
        )
    expected, convert = _CHECKS[name]
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        if isinstance(error, (InvalidArgumentError, UnsupportedError)):
            raise
        hint = naming.hint(_word(value), *_WORDS[name]) if name in _WORDS else None
        raise InvalidArgumentError(
            f"the option {name!r} can't have this value", expected=expected, got=repr(value), hint=hint
        ) from error


def _meant_option(name: str) -> str | None:
    """What an error says of a name that no option has."""
    if name in ("device", "fallback"):
        return f"it belongs to the backend: TensorRTBackend({name}=...)"
    found = naming.hint(
        name, [*_CHECKS, *LATER], lambda near: f"which is not supported: {LATER[near]}" if near in LATER else None
    )
    if found:
        return found
    values = ((option, _native.nearest(name, list(words))) for option, (words, _) in _WORDS.items())
    return next((f'it is a value: {option}="{word}"' for option, word in values if word), None)


def _word(value: Any) -> str:
    """A value as somebody would write it: dtypes by their names alone."""
    return str(getattr(value, "__name__", value)).rpartition(".")[2]


def _precision(value: Any) -> str:
    if isinstance(value, (set, frozenset, list, tuple)):
        return _combined(value, value)
    if isinstance(value, str) and "+" in value:
        return _combined(value.split("+"), value)
    word = _word(value).lower()
    return word if word in QUANTIZED else str(_one_of(*PRECISIONS)(value))


def _combined(given: Iterable[Any], value: Any) -> str:
    """Several precisions as one. `value`: all of them, as they were given."""
    each = [check("precision", one.strip().lower() if isinstance(one, str) else one) for one in given]
    words = set(each)
    twice = isinstance(value, str) and len(words) < len(each)
    # What is wider than another one is allowed anyway.
    words = words - {"fp32"} or words
    found = [word for word in (*words, *COMBINED) if words == set(word.split("+"))]
    if twice or not found:
        raise InvalidArgumentError(
            "these precisions can't be combined",
            expected="int8 or fp8 with fp16 or bf16, as int8+fp16",
            got=repr(sorted(words) if isinstance(value, (set, frozenset)) else value),
        )
    return str(found[0])


def no_arithmetic(precision: str) -> str | None:
    """Why a precision is of no use on this machine; None where it is of use."""
    able = [set(computed(name)) for name in BUILT_IN if probe.state(name).available]
    here = [p for p in WORDS if any(is_among(p, found) for found in (*able, ()))]
    return None if precision in here else f"this machine has arithmetic for {', '.join(here)} alone"


def _cannot_run(name: str) -> str | None:
    """Why a provider can't run here, and who can."""
    reason = probe.state(name).cause
    able = [repr(other) for other in BUILT_IN if probe.state(other).available]
    return f"which can't run here ({reason}); {' and '.join(able)} can" if reason else None


def _io_dtype(value: Any) -> str:
    # numpy's names, and dtypes themselves, mean the same.
    named = {name: word for word, name in IO_DTYPES.items()}
    word = value if isinstance(value, str) and value in IO_DTYPES else named.get(np.dtype(value).name)
    return str(_one_of(*IO_DTYPES)(word))


def _one_of(*allowed: Any) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        # 1 == True, so the type counts too.
        if any(value == a and type(value) is type(a) for a in allowed):
            return value
        raise ValueError(value)

    return convert


def _count(least: int, most: int = 1 << 62) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or int(value) != value or not least <= value <= most:
            raise ValueError(value)
        return int(value)

    return convert


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _providers(value: Any) -> tuple[str, ...]:
    chosen = (value,) if isinstance(value, str) else tuple(value)
    for name in chosen:
        if name not in BUILT_IN and not provider.is_known(name):
            known = list(dict.fromkeys([*BUILT_IN, *dict(_native.provider_states()), *provider.entries()]))
            hint = naming.hint(name, known, lambda near: _cannot_run(near) if near in BUILT_IN else None)
            raise InvalidArgumentError(f"there is no provider {name!r}", expected=", ".join(known), hint=hint)
    if not chosen:
        raise ValueError(value)
    return chosen


def _exclude(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    for name in value:
        _providers(name)
    return {str(name): _names(excluded) for name, excluded in value.items()}


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(value)
    # An iterator gives them once.
    given = tuple(value)
    if not all(isinstance(name, str) for name in given):
        raise TypeError(value)
    return given


def _plugins(value: Any) -> tuple[Plugin, ...]:
    if isinstance(value, Mapping):
        return tuple(_named(name, cls) for name, cls in value.items())
    if isinstance(value, (str, type)):
        return (value if isinstance(value, str) else _named(value.__name__, value),)
    return tuple(plugin for item in value for plugin in _plugins(item))


def _named(name: Any, cls: Any) -> tuple[str, type]:
    if not (isinstance(name, str) and isinstance(cls, type)):
        raise TypeError(name)
    return name, cls


def _cache(value: Any) -> str | bool | None:
    if value is None or value is False:
        return value
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise TypeError(value)


def _number(value: Any) -> float:
    number = float(value)
    if not number >= 0:
        raise ValueError(value)
    return number


def _callable(value: Any) -> Any:
    if not callable(value):
        raise TypeError(value)
    return value


#: The words that an option may have, and why one of them is of no use.
_WORDS: dict[str, tuple[Sequence[str], Callable[[str], str | None]]] = {
    "precision": (WORDS, lambda near: (lacking := no_arithmetic(near)) and f"but {lacking}"),
    "io_dtype": (tuple(IO_DTYPES), lambda _: None),
    "hint": (HINTS, lambda _: None),
}
_flag = _one_of(True, False)
#: For each option: what may be given, and how it is checked.
_CHECKS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "precision": (", ".join(WORDS), _precision),
    "calibration": ("a Calibrator, batches, or a path to such", lambda value: value),
    "accuracy": ("names of tools, or a dict from such to settings", read_accuracy),
    "keep": ("a list of names of layers", _names),
    "accuracy_budget": ("a number that is not negative, or None", _or_none(_number)),
    "metric": ("a function, or None", _or_none(_callable)),
    "io_dtype": (", ".join([*IO_DTYPES, "or None"]), _or_none(_io_dtype)),
    "workspace_size": ("bytes, or None", _or_none(_count(0))),
    "optimization_level": ("0 to 5", _count(0, 5)),
    "threads": ("a number from 1 on, or None", _or_none(_count(1, 4096))),
    "hint": (" or ".join(f'"{word}"' for word in HINTS), _one_of(*HINTS)),
    "deterministic": ("True or False", _flag),
    "providers": ("a list of names, or None", _or_none(_providers)),
    "exclude": ("a dict from provider to a list of ops and layers", _exclude),
    "strict": ("True or False", _flag),
    "verify": ('"auto", True or False', _one_of("auto", True, False)),
    "sample": ("arrays, dicts of them, or an iterable of such", samples.taken),
    "timing_cache": ("a path, None or False", _cache),
    "refittable": ("True or False", _flag),
    "progress": ("a function of a phase, the steps done and the steps in all, or None", _or_none(_callable)),
    "plugins": ("classes, a dict from name to class, names of modules, or paths of libraries (.so)", _plugins),
}
