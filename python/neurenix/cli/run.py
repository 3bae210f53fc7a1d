"""Runs a model once and prints its outputs; `--compare` holds them against ONNX Runtime's."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from neurenix.cli import peers
from neurenix.cli.common import (
    Arrays,
    add_model_arguments,
    amount,
    inputs_for,
    load_inputs,
    optimize,
    write_arrays,
    write_json,
)
from neurenix.cli.models import load_given
from neurenix.errors import InvalidArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_model_arguments(parser)
    parser.add_argument(
        "--load-inputs",
        "--loadInputs",
        nargs="+",
        default=[],
        metavar="NAME:FILE",
        help=".npy and .bin files, or an .npz; what is not given is random",
    )
    parser.add_argument("--save-inputs", metavar="FILE", help="write the inputs to an .npz file")
    parser.add_argument("--save-outputs", metavar="FILE", help="write the outputs to an .npz file")
    parser.add_argument("--load-outputs", metavar="FILE", help="compare with the outputs of an .npz file")
    parser.add_argument(
        "--compare",
        default="",
        metavar="NAMES",
        help="run these too: keras, onnxruntime, openvino, tensorflow, torch, onnx (the reference); exit with 1 when "
        "one differs",
    )
    parser.add_argument(
        "--torch-module", metavar="MODULE", help="for --compare torch: package.module:factory, or a .pt2 file"
    )
    parser.add_argument(
        "--atol", type=amount, default=1e-4, help="error that may be, relative to the greatest value (1e-4)"
    )
    parser.add_argument(
        "--check-error-stat", choices=tuple(peers.STATISTICS), default="max", help="which error that is (max)"
    )
    parser.add_argument("--validate", action="store_true", help="exit with 1 when an output has NaN or Inf")
    parser.add_argument("--report", action="store_true", help="print what the engine does")


def run(arguments: argparse.Namespace) -> int:
    """Runs the model; 1 when a comparison or validation fails."""
    source = load_given(arguments)
    model = optimize(arguments, source)
    inputs = inputs_for(arguments, model)
    outputs: Arrays = model(inputs)
    rows = {name: _describe(array) for name, array in outputs.items()}
    failed = [name for name, row in rows.items() if arguments.validate and row["not_finite"]]
    for name, others in _others(arguments, source, inputs, outputs).items():
        errors = {key: peers.STATISTICS[arguments.check_error_stat](outputs[key], others[key]) for key in outputs}
        for key, error in errors.items():
            rows[key][f"error_{name}"] = error
        failed += [key for key, error in errors.items() if not error <= arguments.atol]
    _save(arguments.save_inputs, inputs)
    _save(arguments.save_outputs, outputs)
    content = {"outputs": rows, "passed": not failed, "report": model.report().without_graph()}
    if not write_json(arguments.json, content):
        for name, row in rows.items():
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
        if arguments.report:
            print(model.report())
        if failed:
            print(f"FAILED: {', '.join(dict.fromkeys(failed))}")
    return 1 if failed else 0


def _others(arguments: argparse.Namespace, source: Any, inputs: Arrays, outputs: Arrays) -> dict[str, Arrays]:
    """What other engines and files say, by their names."""
    found: dict[str, Arrays] = {}
    for name in filter(None, arguments.compare.split(",")):
        with peers.Peer.of(name, source, inputs, arguments) as peer:
            found[name] = dict(zip(outputs, peer.outputs(), strict=True))
    if arguments.load_outputs:
        saved = load_inputs([arguments.load_outputs])
        if missing := [name for name in outputs if name not in saved]:
            raise InvalidArgumentError("the file lacks outputs", expected=", ".join(missing), got=", ".join(saved))
        found["file"] = saved
    return found


def _save(path: str | None, arrays: Arrays) -> None:
    if path:
        write_arrays(path, arrays)


def _describe(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    numbers = (float(f(finite)) for f in (np.min, np.max, np.mean)) if finite.size else (0.0, 0.0, 0.0)
    low, high, mean = numbers
    return {
        "dtype": str(array.dtype),
        "shape": "x".join(map(str, array.shape)) or "scalar",
        "min": low,
        "max": high,
        "mean": mean,
        "not_finite": int(values.size - finite.size),
    }
