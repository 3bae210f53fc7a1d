"""What `torch.compile(..., options=)` takes: our own names, and those of Torch-TensorRT's settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from neurenix import names
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware import options as build
from neurenix.log import LOG


@dataclass(frozen=True)
class Settings:
    """How `torch.compile` uses this package.

    - `freeze`: parameters and buffers become constants for good: what is written into them later does not show; other
      tensors in their place, such as those of another module of the same class, have an engine built. Otherwise a call
      that finds them changed replaces them in the engine first.
    - `min_block_size`: partitions of fewer operations run in torch; None for three, or one that takes long (a product,
      a convolution). A graph that is one partition always runs here.
    - `torch_executed_ops`: operators that run in torch: `torch.ops.aten.add.Tensor`, "torch.ops.aten.add", "aten.add".
    - `require_full_compilation`: an operator or partition that would run in torch raises `UnsupportedError`.
    - `pass_through_build_failures`: what goes wrong in a build is raised; otherwise the partition runs in torch, with
      one warning.
    - `background`: calls run in torch until the engine has been built, beside them.
    - `dryrun`: no engine is built; the log, or the file of this path, says what would run where, and torch runs all.
    - `cache`: whether engines are kept for other processes, and in which folder (True: in the cache directory).
    - `cache_size`: bytes that the folder holds at most; the engines that were used least lately leave it first.
    - `build`: the options of `optimize_model` (`precision`, `optimization_level`, `threads`, ...).
    """

    freeze: bool = False
    min_block_size: int | None = None
    torch_executed_ops: frozenset[str] = frozenset()
    require_full_compilation: bool = False
    pass_through_build_failures: bool = False
    background: bool = False
    dryrun: bool | str = False
    cache: bool | str = True
    cache_size: int = 5 << 30
    build: Mapping[str, Any] = field(default_factory=dict)

    #: Those of `optimize_model` that a partition of somebody's model decides by itself.
    NOT_OURS: ClassVar = {
        "refittable": "use freeze=True or freeze=False",
        "sample": "partitions are verified on what the first call brings",
        "io_dtype": "inputs and outputs of a partition are torch's",
    }

    @classmethod
    def of(cls, given: Mapping[str, Any] | None = None, to_calibrate: str = "give calibration=") -> Settings:
        """Settings from the options of a `torch.compile`; `to_calibrate` says how batches are given.

        Raises `InvalidArgumentError` for an unknown name (with the nearest one) or a value that makes no sense, and
        `UnsupportedError`, with the reason, for what is not there yet.
        """
        if not isinstance(given or {}, Mapping):
            raise InvalidArgumentError("options are given by name", expected="a dict", got=type(given).__name__)
        found: dict[str, Any] = {"build": {}}
        for name, value in dict(given or {}).items():
            _take(found, name, value)
        build.Options(**found["build"]).check_precision(to_calibrate)
        return cls(**found)


def _take(found: dict[str, Any], name: str, value: Any) -> None:
    if name in Settings.NOT_OURS:
        raise InvalidArgumentError(f"torch.compile takes no option {name!r}", hint=Settings.NOT_OURS[name])
    if name in _OWN:
        expected, convert = _OWN[name]
        try:
            found[name] = convert(value)
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError(
                f"the option {name!r} can't have this value", expected=expected, got=repr(value)
            ) from error
    elif name in _TRANSLATED:
        for key, converted in _TRANSLATED[name](value).items():
            if key in _OWN:
                _take(found, key, converted)
            else:
                found["build"][key] = build.check(key, converted)
    elif name in _WITHOUT_EFFECT:
        LOG.debug("the option %s=%r changes nothing here: %s", name, value, _WITHOUT_EFFECT[name])
    elif name in _REFUSED:
        allowed, reason = _REFUSED[name]
        if not any(value is one or value == one for one in allowed):
            raise UnsupportedError(f"the option {name}={value!r} is not supported: {reason}", hint="leave it out")
    elif name in build.names() or name in build.LATER:
        found["build"][name] = build.check(name, value)
    else:
        known = [*_OWN, *build.names(), *_TRANSLATED, *_WITHOUT_EFFECT, *_REFUSED]
        raise InvalidArgumentError(
            f"there is no option {name!r}",
            expected=", ".join([*_OWN, *(n for n in build.names() if n not in Settings.NOT_OURS)]),
            hint=names.hint(name, known),
        )


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _count(least: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or int(value) != value or value < least:
            raise ValueError(value)
        return int(value)

    return convert


def _path_or_flag(value: Any) -> bool | str:
    return value if isinstance(value, bool) else os.fspath(value)


def operator_name(value: Any) -> str:
    """How an operator is called here: "aten.add.Tensor", or "aten.add" for all of its overloads."""
    if isinstance(value, torch._ops.OpOverload):
        namespace, _, rest = str(value.name()).partition("::")  # type: ignore[no-untyped-call]
        return f"{namespace}.{rest if '.' in rest else rest + '.default'}"
    if isinstance(value, torch._ops.OpOverloadPacket):
        return str(value._qualified_op_name).replace("::", ".")
    if isinstance(value, str):
        text = value.removeprefix("torch.ops.").replace("::", ".").replace("aten::", "aten.")
        if 1 <= text.count(".") <= 2 and all(text.split(".")):
            return text
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    raise ValueError(value)


def _operators(value: Any) -> frozenset[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(value)
    return frozenset(operator_name(one) for one in value)


#: For each of our options: what may be given, and how it is checked.
_OWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "freeze": ("True or False", _flag),
    "min_block_size": ("a number from 1 on, or None", lambda value: None if value is None else _count(1)(value)),
    "torch_executed_ops": ('operators: torch.ops.aten.add.Tensor, "torch.ops.aten.add"', _operators),
    "require_full_compilation": ("True or False", _flag),
    "pass_through_build_failures": ("True or False", _flag),
    "background": ("True or False", _flag),
    "dryrun": ("True, False or the path of a file", _path_or_flag),
    "cache": ("True, False or a folder", _path_or_flag),
    "cache_size": ("bytes, from 0 on", _count(0)),
}

#: The precisions that compute in a torch dtype, the narrowest first.
_DTYPES = (("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32))


def precision_of(dtypes: Any) -> str:
    """The precision that Torch-TensorRT's `enabled_precisions` asks for: the narrowest of them, 8 bits with 16 for the
    rest where both are there.

    Raises as `optimize_model` for int8 and fp8, `InvalidArgumentError` for what is no dtype.
    """
    given = {dtypes} if isinstance(dtypes, (str, torch.dtype)) or not isinstance(dtypes, Iterable) else set(dtypes)
    wanted = {_dtype(one) for one in given}
    floats = [word for word, dtype in _DTYPES if dtype in wanted]
    if wanted & {torch.int8, torch.uint8}:
        return str(build.check("precision", ["int8", *floats[:1]]))
    if any(str(one).startswith("torch.float8") for one in wanted):
        return str(build.check("precision", ["fp8", *floats[:1]]))
    if floats:
        return floats[0]
    raise InvalidArgumentError(
        "enabled_precisions names no precision that is computed in",
        expected="torch.float32, torch.float16, torch.bfloat16",
        got=", ".join(map(str, given)) or "none",
    )


def _dtype(value: Any) -> Any:
    converted = getattr(value, "to_torch", None)
    if converted is not None:
        return converted()
    if isinstance(value, torch.dtype):
        return value
    names_of = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "float": "float32"}
    word = str(getattr(value, "name", value)).lower()
    found = getattr(torch, names_of.get(word, word), None)
    return found if isinstance(found, torch.dtype) else value


def _workspace(value: Any) -> dict[str, Any]:
    # Torch-TensorRT's default, 0, leaves it to the library.
    return {} if value in (0, None) else {"workspace_size": value}


def _device(value: Any) -> dict[str, Any]:
    word = str(getattr(value, "type", value)).lower()
    if "dla" in word:
        raise UnsupportedError("the option 'device' asks for a DLA, which is not supported", hint="leave it out")
    return {}


def _cache_when(value: Any) -> dict[str, Any]:
    return {} if _flag(value) else {"cache": False}


#: Torch-TensorRT's names for what we have: what they become.
_TRANSLATED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "enabled_precisions": lambda value: {"precision": precision_of(value)},
    "workspace_size": _workspace,
    "optimization_level": lambda value: {} if value is None else {"optimization_level": value},
    "timing_cache_path": lambda value: {"timing_cache": value},
    "immutable_weights": lambda value: {"freeze": _flag(value)},
    "make_refittable": lambda value: {"freeze": not _flag(value)},
    "make_refitable": lambda value: {"freeze": not _flag(value)},
    "cache_built_engines": _cache_when,
    "reuse_cached_engines": _cache_when,
    "engine_cache_dir": lambda value: {} if value is None else {"cache": value},
    "engine_cache_size": lambda value: {} if value is None else {"cache_size": value},
    "device": _device,
    "refit": lambda value: {"freeze": not _flag(value)},
    "calibrator": lambda value: {} if value is None else {"calibration": value},
}

_LIBRARY = "it tunes TensorRT's own builder"
#: Torch-TensorRT's names that ask for nothing that would differ here.
_WITHOUT_EFFECT = {
    "debug": "NEURENIX_LOG=debug logs more",
    "disable_tf32": 'float32 is strict unless precision="tf32" is asked for',
    "max_aux_streams": _LIBRARY,
    "num_avg_timing_iters": "optimization_level says how often kernels are timed",
    "num_min_timing_iters": "optimization_level says how often kernels are timed",
    "version_compatible": "engines are planned anew for other versions",
    "hardware_compatible": "engines are planned anew for other hardware",
    "use_python_runtime": "there is one runtime",
    "use_fast_partitioner": "there is one partitioner",
    "enable_experimental_decompositions": "operators are taken apart where the importer needs that",
    "decompose_attention": "attention is kept whole",
    "truncate_double": "float64 stays float64",
    "truncate_long_and_double": "int64 and float64 stay what they are",
    "use_explicit_typing": "networks are strongly typed",
    "use_fp32_acc": "products accumulate in float32",
    "refit_identical_engine_weights": "weights are compared by name",
    "engine_capability": _LIBRARY,
    "tiling_optimization_level": _LIBRARY,
    "l2_limit_for_tiling": _LIBRARY,
    "lazy_engine_init": "engines are built at the first call",
    "assume_dynamic_shape_support": "shapes may be dynamic in every operator",
    "use_distributed_mode_trace": "one process is compiled for",
    "offload_module_to_cpu": "the module stays where it is",
    "dynamically_allocate_resources": "contexts are made when a call needs them",
    "dla_sram_size": "there is no DLA",
    "dla_local_dram_size": "there is no DLA",
    "dla_global_dram_size": "there is no DLA",
    "allow_shape_tensors": "sizes are tensors where they have to be",
}

#: Torch-TensorRT's names of which these values alone can be had, and why.
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "sparse_weights": ((False,), "weights with a 2:4 pattern run as dense ones"),
    "strip_engine_weights": ((False,), "an engine keeps its weights"),
    "enable_weight_streaming": ((False,), "weights stay on the device"),
    "enable_cross_compile_for_windows": ((False,), "Linux alone is supported"),
    "enable_autocast": ((False, None), 'use precision="fp16" or "bf16", or torch.autocast around the call'),
    "custom_engine_cache": ((None,), "engines are kept in a folder: engine_cache_dir"),
}
