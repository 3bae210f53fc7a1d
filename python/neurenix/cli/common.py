"""What commands share: options, inputs, JSON."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurenix import files, shapes
from neurenix import names as naming
from neurenix.cli import progress
from neurenix.cli.models import add_model, is_engine, look_here
from neurenix.errors import FileError, InvalidArgumentError, OutOfMemoryError
from neurenix.hardware import get_backend
from neurenix.hardware.optimized import OptimizedModel, Port
from neurenix.hardware.options import HINTS, WORDS, check, eight_bits_of, no_arithmetic
from neurenix.quantization.accuracy import TOOLS
from neurenix.quantization.region_benchmark import all_in_floats

Arrays = dict[str, "np.ndarray[Any, Any]"]

#: Names of dtypes in the precisions that ask for them.
ATTAINED = {
    "fp32": "float32", "tf32": "tf32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8", "fp8": "float8_e4m3fn",
}  # fmt: skip

#: The greatest size of a dimension of which nobody gave a range.
ANY_SIZE = 2**31 - 1

#: How far outputs may be from the original's, relative to their greatest value.
BUDGETS = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 2e-2, "bf16": 1e-1, "int8": 2e-1, "fp8": 2e-1, "mixed": 2e-1}


def budget(precision: str) -> float:
    """How far outputs may be from the original's in a precision, relative to their greatest value."""
    return max(BUDGETS[word] for word in precision.split("+"))


def count(text: str) -> int:
    """argparse's type for a number of things: 0 or more."""
    if (value := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def number(text: str) -> int:
    """argparse's type for a number of things of which there must be one: 1 or more."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def amount(text: str) -> float:
    """argparse's type for a time or an error: 0 or more."""
    if not (value := float(text)) >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return value


def megabytes(text: str) -> int:
    """argparse's type for a size in MB: its bytes."""
    if (value := amount(text)) == math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no size")
    return int(value * 2**20)


def add_model_arguments(parser: argparse.ArgumentParser, precision: str | None = "fp32") -> None:
    """The model, and how to optimise it. `precision` None: the command has a default of its own."""
    add_model(parser)
    parser.add_argument(
        "--shapes",
        metavar="NAME:SHAPE,...",
        help="of the inputs: input:1x3x224x224,mask:1x128 (where they are dynamic)",
    )
    parser.add_argument(
        "--input-shape",
        nargs="+",
        metavar="N",
        help="the same with spaces: 1 3 224 224 for a model with one input, or input:1x3x224x224 mask:1x128",
    )
    parser.add_argument(
        "--precision",
        default=precision,
        metavar="NAME",
        help=f"of float32 layers: {', '.join(WORDS)} (fp32)",
    )
    add_build_arguments(parser)
    add_json(parser)


def add_build_arguments(parser: argparse.ArgumentParser) -> None:
    """How to optimise, but for shapes and precision."""
    parser.add_argument("--threads", type=int, help="of the CPU (NEURENIX_THREADS, else all cores)")
    parser.add_argument("--backend", metavar="NAME", help="the preferred one: tensorrt, cuda or cpu (tensorrt)")
    parser.add_argument("--optimization-level", type=int, help="0 (no timing) to 5 (3, or that of an engine file)")
    parser.add_argument(
        "--hint",
        choices=HINTS,
        help="one call is to be fast, or many beside each other (latency, or as the file)",
    )
    parser.add_argument("--deterministic", action="store_true", help="builds repeat: nothing is timed")
    parser.add_argument("--providers", nargs="+", metavar="NAME", help="which may be used, the preferred one first")
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PROVIDER:OP,...",
        help="ops or layers that a provider must not run",
    )
    parser.add_argument(
        "--sample",
        nargs="+",
        default=[],
        metavar="FILE",
        help="what a lower precision is verified on: an .npz with an array for each input, or an .npy for the only one",
    )
    parser.add_argument("--timing-cache", metavar="FILE", help="of measured times ('none': none)")
    parser.add_argument("--strict", action="store_true", help="fail where a layer falls back to another provider")
    parser.add_argument(
        "--plugins",
        action="append",
        default=[],
        metavar="MODULE",
        help="import it first, or load it (.so): it registers plugins",
    )
    parser.add_argument("--seed", type=count, default=0, help="of random inputs (0)")


def add_accuracy(parser: argparse.ArgumentParser) -> None:
    """Which tools lower the error of 8 bits, and which layers stay in floats."""
    parser.add_argument(
        "--accuracy",
        metavar="TOOL,...",
        help=f"for 8 bits: tools that lower the error, of {', '.join(TOOLS)} (smooth:alpha=0.5 sets a setting)",
    )
    parser.add_argument(
        "--keep",
        nargs="+",
        default=[],
        metavar="NAME",
        help="for 8 bits: layers, or nodes of the model, to leave in floats",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Where to write JSON."""
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON, to a file or to stdout")


def given_shapes(arguments: argparse.Namespace) -> Any:
    """The shapes that were asked for: a dict by name, a tuple for the only input, or None.

    Raises `InvalidArgumentError` when they are given in two ways, and `ShapeError` for what is no shape.
    """
    words = arguments.input_shape
    if words and arguments.shapes:
        raise InvalidArgumentError("the shapes are given twice", expected="--shapes or --input-shape, not both")
    if arguments.shapes:
        return _parsed(arguments.shapes)
    if not words:
        return None
    if all(word.isdecimal() for word in words):
        return tuple(map(int, words))
    return _parsed(",".join(words))


def _parsed(text: str) -> Any:
    """Shapes by name, or the one of the only input."""
    alone = text.split("x")
    if len(alone) > 1 and all(word.isdecimal() for word in alone):
        return tuple(map(int, alone))
    return shapes.parse(text)


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `optimize_model` and of `load`."""
    if arguments.plugins:
        look_here()
    batches = [load_inputs([file]) for file in arguments.sample]
    # What nobody asks for is, of an engine file, what it was built with.
    asked = {"optimization_level": arguments.optimization_level, "hint": arguments.hint}
    return {name: value for name, value in asked.items() if value is not None} | {
        "threads": arguments.threads,
        "deterministic": arguments.deterministic,
        "providers": arguments.providers,
        "exclude": _excluded(arguments.exclude),
        "timing_cache": False if arguments.timing_cache == "none" else arguments.timing_cache,
        "strict": arguments.strict,
        "plugins": arguments.plugins,
        # A file without names holds the only input.
        "sample": [next(iter(found.values())) if list(found) == [""] else found for found in batches],
    }


def _excluded(given: Sequence[str]) -> dict[str, list[str]]:
    """The option `exclude`, as its texts say it."""
    found: dict[str, list[str]] = {}
    for text in given:
        provider, colon, names = text.partition(":")
        if not colon or not names:
            raise InvalidArgumentError(
                "what is excluded can't be read", expected="PROVIDER:OP,... as in tensorrt:Resize", got=repr(text)
            )
        found.setdefault(provider, []).extend(names.split(","))
    return found


def optimize(arguments: argparse.Namespace, model: Any, **more: Any) -> OptimizedModel:
    """The model, optimised as the arguments say; an engine file is opened."""
    backend = get_backend(arguments.backend)
    if is_engine(arguments.model):
        with progress.step("opening the engine"):
            return _of_precision(backend.load(arguments.model, **options(arguments)), arguments.precision)
    given = more.pop("input_shapes", None) or given_shapes(arguments)
    with progress.step("building the engine"):
        return backend.optimize_model(
            model, given, more.pop("precision", arguments.precision), **options(arguments), **more
        )


def _of_precision(model: OptimizedModel, asked: str) -> OptimizedModel:
    """The engine, if it was built for the precision that was asked for; fp32 is what stands there where nobody asks."""
    built, asked = model.report()["precision"], check("precision", asked)
    if asked not in ("fp32", built):
        lacking = no_arithmetic(asked)
        raise InvalidArgumentError(
            "an engine file keeps the precision it was built for",
            expected=built,
            got=asked,
            hint=f"leave --precision out: {lacking}"
            if lacking
            else f"export its model anew: neurenix export MODEL --precision {asked}",
        )
    return model


def attained(model: OptimizedModel, precision: str) -> bool:
    """Whether some layer computes in what was asked for, or has such weights: in 8 bits where these and 16 were."""
    # A mix of precisions may be float32 alone.
    if precision in ("fp32", "mixed"):
        return True
    shares = model.report()["layers_per_dtype"]
    wanted = ATTAINED[eight_bits_of(precision) or precision]
    stored = any(name.endswith(f" with {wanted} weights") for name in shares)
    return stored or shares.get(wanted, 0) > 0


def as_asked(model: OptimizedModel, precision: str) -> bool:
    """Whether some layer computes as was asked for, or all products were found to be faster in floats."""
    report = model.report()
    return (report["precision"] == precision and attained(model, precision)) or all_in_floats(report["notes"])


def inputs_for(arguments: argparse.Namespace, model: OptimizedModel) -> Arrays:
    """The arrays of files, and random ones for the inputs that have none."""
    ports = model.inputs
    loaded = load_inputs(getattr(arguments, "load_inputs", None) or [], ports)
    known = [port.name for port in ports]
    for name in loaded:
        if name not in known:
            raise InvalidArgumentError(
                f"the model has no input {name!r}", expected=", ".join(known) or "none", hint=naming.hint(name, known)
            )
    rest = [port for port in ports if port.name not in loaded]
    given = given_shapes(arguments) if rest else None
    if given is None and is_engine(arguments.model) and _has_ranges(model):
        given = {port.name: model.example()[port.name].shape for port in rest}
    return random_inputs(rest, given, arguments.seed) | loaded


def _has_ranges(model: OptimizedModel) -> bool:
    """Whether somebody said for which shapes the engine is best."""
    return all(high < ANY_SIZE for profile in model.profiles for _, _, high in profile.values())


def random_inputs(ports: Sequence[Port], given: Any, seed: int) -> Arrays:
    """An array for each input: normal numbers, small integers, truth values; of the given or fixed shapes."""
    profiles = shapes.profiles(given, [port.name for port in ports])
    wanted = {name: shape.opt for name, shape in profiles[0].items()} if profiles else {}
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    for port in ports:
        shape = wanted.get(port.name, tuple(d for d in port.shape if isinstance(d, int)))
        if len(shape) != len(port.shape):
            example = "x".join("1" if isinstance(d, str) else str(d) for d in port.shape)
            raise InvalidArgumentError(
                "the shape of an input is dynamic",
                tensor=port.name,
                got=str(list(port.shape)),
                hint=f"say it: --shapes {port.name}:{example}",
            )
        try:
            arrays[port.name] = random_array(generator, port.dtype, shape)
        except (MemoryError, OverflowError, ValueError) as error:
            raise OutOfMemoryError(
                "there is not enough memory for an input", tensor=port.name, got=f"{port.dtype.name}{list(shape)}"
            ) from error
    return arrays


def random_array(generator: np.random.Generator, dtype: np.dtype[Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Numbers that a model may well meet in an input of this dtype."""
    if dtype.kind == "b":
        return generator.random(shape) > 0.5
    if dtype.kind in "iu":
        return generator.integers(0, 2, shape).astype(dtype)
    return generator.standard_normal(shape, np.float32).astype(dtype)


def load_inputs(given: Sequence[str], ports: Sequence[Port] = ()) -> Arrays:
    """Arrays from files: name:file.npy, an .npz with all of them, or name:file.bin with the elements alone.

    trtexec's name=file is understood too. Raises `FileError` for a file that can't be read.
    """
    arrays: Arrays = {}
    # The only input need not be named.
    alone = ports[0].name if len(ports) == 1 else ""
    for text in given:
        name, path = (alone, text) if Path(text).exists() else ([*re.split("[:=]", text, maxsplit=1), ""])[:2]
        files.check(path, "the input")
        try:
            if Path(path).suffix == ".bin":
                arrays[name] = _raw(path, next((port for port in ports if port.name == name), None))
                continue
            loaded = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"the input can't be read: {reason}", got=path or text) from error
        arrays |= dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {name: loaded}
    return arrays


def _raw(path: str, port: Port | None) -> np.ndarray[Any, Any]:
    if port is None or any(isinstance(d, str) for d in port.shape):
        raise ValueError("a .bin file has no shape: it is for inputs whose shape the model fixes; save an .npy file")
    shape = [int(d) for d in port.shape]
    return np.fromfile(path, port.dtype).reshape(shape)


def write_json(target: str | None, content: Mapping[str, Any]) -> bool:
    """Writes JSON where the argument says; gives whether that was stdout.

    Raises `FileError` when the file can't be written.
    """
    if target is None:
        return False
    text = json.dumps(content, indent=2, default=_plain)
    if target == "-":
        print(text)
        return True
    write_file(target, text + "\n")
    return False


def write_file(path: str, text: str) -> None:
    """Writes a text file, whole or not at all; raises `FileError` when it can't be written."""
    files.write(path, text, "the file")


def write_arrays(path: str, arrays: Arrays) -> None:
    """Writes an .npz file, whole or not at all; raises `FileError` when it can't be written."""
    target = path if path.endswith(".npz") else f"{path}.npz"
    with files.replacing(target, "the file of the arrays") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return str(value)
