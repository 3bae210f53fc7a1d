"""Runs a model once and prints its outputs; `--compare` holds them against ONNX Runtime's."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from neurenix.cli import peers
from neurenix.cli.common import (
    Arrays,
    add_model_arguments,
    load_inputs,
    load_model,
    optimize,
    random_inputs,
    write_json,
)
from neurenix.errors import FileError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_model_arguments(parser)
    parser.add_argument(
        "--load-inputs", nargs="+", default=[], metavar="NAME:FILE", help=".npy files, or an .npz (random)"
    )
    parser.add_argument("--save-outputs", metavar="FILE", help="write the outputs to an .npz file")
    parser.add_argument(
        "--compare", choices=("onnxruntime", "openvino"), help="run that too; exit with 1 when it differs"
    )
    parser.add_argument("--atol", type=float, default=1e-4, help="greatest error relative to the greatest value (1e-4)")
    parser.add_argument("--validate", action="store_true", help="exit with 1 when an output has NaN or Inf")
    parser.add_argument("--report", action="store_true", help="print what the engine does")


def run(arguments: argparse.Namespace) -> int:
    """Runs the model; 1 when a comparison or validation fails."""
    source = load_model(arguments.model)
    model = optimize(arguments, source)
    inputs = random_inputs(model.inputs, arguments.shapes, arguments.seed) if not arguments.load_inputs else {}
    inputs |= load_inputs(arguments.load_inputs)
    outputs: Arrays = model(inputs)
    rows = {name: _describe(array) for name, array in outputs.items()}
    failed = [name for name, row in rows.items() if arguments.validate and row["not_finite"]]
    if arguments.compare:
        with peers.Peer.of(arguments.compare, source, inputs, arguments) as peer:
            for (name, array), other in zip(outputs.items(), peer.outputs(), strict=True):
                rows[name]["error"] = peers.relative_error(array, other)
                failed += [name] if not rows[name]["error"] <= arguments.atol else []
    if arguments.save_outputs:
        try:
            np.savez(arguments.save_outputs, **outputs)  # type: ignore[arg-type]
        except OSError as error:
            raise FileError(f"the outputs can't be written: {error}", got=arguments.save_outputs) from error
    content = {"outputs": rows, "passed": not failed, "report": model.report()}
    if not write_json(arguments.json, content):
        for name, row in rows.items():
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
        if arguments.report:
            print(model.report())
        if failed:
            print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


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
