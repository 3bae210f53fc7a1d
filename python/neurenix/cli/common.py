"""What commands share: models, inputs, options, JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurenix import shapes
from neurenix.errors import FileError, InvalidArgumentError
from neurenix.hardware import get_backend
from neurenix.hardware.optimized import OptimizedModel, Port
from neurenix.hardware.options import PRECISIONS

Arrays = dict[str, "np.ndarray[Any, Any]"]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, and how to optimise it."""
    parser.add_argument("model", help="a .onnx file, or package.module:factory, which gives a torch or neurenix module")
    parser.add_argument("--shapes", help="of the inputs: input:1x3x224x224,mask:1x128 (needed where they are dynamic)")
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS, help="of float32 layers (fp32)")
    parser.add_argument("--threads", type=int, help="of the CPU (NEURENIX_THREADS, else all cores)")
    parser.add_argument("--backend", choices=("tensorrt", "cuda", "cpu"), help="the preferred one (tensorrt)")
    parser.add_argument("--optimization-level", type=int, default=3, help="0 (no timing) to 5 (3)")
    parser.add_argument("--strict", action="store_true", help="fail where a layer falls back to another provider")
    parser.add_argument(
        "--plugins",
        action="append",
        default=[],
        metavar="MODULE",
        help="import it first, or load it (.so): it registers plugins",
    )
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (0)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON, to a file or to stdout")


def load_model(text: str) -> Any:
    """A path as it is; what a factory gives, for package.module:factory.

    Raises `InvalidArgumentError` when there is no such factory.
    """
    if Path(text).exists() or ":" not in text:
        return text
    module, _, name = text.rpartition(":")
    _look_here()
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"there is no factory {text!r}: {error}") from error
    return factory()


def _look_here() -> None:
    """Modules of the folder at hand can be imported."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def optimize(arguments: argparse.Namespace, model: Any) -> OptimizedModel:
    """The model, optimised as the arguments say."""
    if arguments.plugins:
        _look_here()
    return get_backend(arguments.backend).optimize_model(
        model,
        shapes.parse(arguments.shapes) if arguments.shapes else None,
        arguments.precision,
        threads=arguments.threads,
        optimization_level=arguments.optimization_level,
        strict=arguments.strict,
        plugins=arguments.plugins,
    )


def random_inputs(ports: Sequence[Port], given: str | None, seed: int) -> Arrays:
    """An array for each input: normal numbers, small integers, truth values; of the given or fixed shapes."""
    wanted = shapes.parse(given) if given else {}
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    for port in ports:
        shape = wanted.get(port.name) or tuple(d for d in port.shape if isinstance(d, int))
        if len(shape) != len(port.shape):
            example = "x".join("1" if isinstance(d, str) else str(d) for d in port.shape)
            raise InvalidArgumentError(
                "the shape of an input is dynamic",
                tensor=port.name,
                got=str(list(port.shape)),
                hint=f"say it: --shapes {port.name}:{example}",
            )
        if port.dtype.kind == "b":
            arrays[port.name] = generator.random(shape) > 0.5
        elif port.dtype.kind in "iu":
            arrays[port.name] = generator.integers(0, 2, shape).astype(port.dtype)
        else:
            arrays[port.name] = generator.standard_normal(shape, np.float32).astype(port.dtype)
    return arrays


def load_inputs(given: Sequence[str]) -> Arrays:
    """Arrays from files: name:file.npy, or an .npz with all of them.

    Raises `FileError` for a file that can't be read.
    """
    arrays: Arrays = {}
    for text in given:
        name, _, path = text.partition(":") if not Path(text).exists() else ("", "", text)
        try:
            loaded = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise FileError(f"the input can't be read: {error}", got=path) from error
        arrays |= dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {name: loaded}
    return arrays


def write_json(target: str | None, content: Mapping[str, Any]) -> bool:
    """Writes JSON where the argument says; gives whether that was stdout."""
    if target is None:
        return False
    text = json.dumps(content, indent=2)
    if target == "-":
        print(text)
        return True
    Path(target).write_text(text + "\n", encoding="utf-8")
    return False
