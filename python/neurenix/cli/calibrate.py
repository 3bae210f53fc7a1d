"""`neurenix calibrate`: finds the ranges of a model's tensors, and writes them as a calibration cache; the quantized
model too, where that is asked for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from neurenix.cli.common import add_accuracy, add_json, count, given_shapes, write_json
from neurenix.cli.models import add_model, load_given
from neurenix.cli.outputs import keep_apart
from neurenix.errors import InvalidArgumentError
from neurenix.quantization import CalibrationCache, calibrate, to_onnx
from neurenix.quantization.accuracy import OF_WEIGHTS, PER_TOKEN, read
from neurenix.quantization.cache import METHODS, check_writable
from neurenix.quantization.calibrators import Calibrator


class Keeping(Calibrator):
    """A calibrator that keeps its cache."""

    kept: CalibrationCache | None = None

    def write_calibration_cache(self, cache: bytes) -> None:
        """Keeps it."""
        self.kept = CalibrationCache.of_bytes(cache)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_model(parser)
    parser.add_argument(
        "--data", required=True, metavar="PATH", help="a folder of images, .npy or .npz, or one such file"
    )
    parser.add_argument("--output", "-o", metavar="FILE", help="the cache (the model's name with .cache)")
    parser.add_argument("--method", choices=METHODS, default="entropy", help="how ranges follow from the numbers")
    parser.add_argument("--onnx", metavar="FILE", help="writes the quantized model, too: ONNX with Q/DQ layers")
    add_accuracy(parser)
    parser.add_argument("--samples", type=count, metavar="N", help="how many files are read at most")
    parser.add_argument("--shapes", metavar="NAME:SHAPE,...", help="of the inputs: input:1x3x224x224,mask:1x128")
    parser.add_argument("--input-shape", nargs="+", metavar="N", help="the same with spaces: 1 3 224 224")
    parser.add_argument("--threads", type=int, help="of the CPU (NEURENIX_THREADS, else all cores)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the cache."""
    target = Path(arguments.output or f"{Path(arguments.model).stem}.cache")
    arguments.output = str(target)
    keep_apart(arguments)
    check_writable(target)
    accuracy = read(arguments.accuracy)
    stuck = [tool for tool in accuracy.tools if tool in OF_WEIGHTS]
    if stuck and arguments.onnx is None:
        raise InvalidArgumentError(
            f"--accuracy {stuck[0]} changes weights and biases, and a cache holds ranges alone",
            hint="add --onnx FILE, or take neurenix export --precision int8 with the same --accuracy",
        )
    if arguments.onnx is not None:
        check_writable(arguments.onnx, "the quantized model")
    source = load_given(arguments)
    calibrator = Keeping(arguments.data, limit=arguments.samples)
    calibrator.method = arguments.method
    shapes, threads = given_shapes(arguments), arguments.threads
    network = calibrate(source, calibrator, shapes, keep=arguments.keep, accuracy=accuracy, threads=threads)
    cache = calibrator.kept
    if cache is None and PER_TOKEN not in accuracy:
        raise InvalidArgumentError("the model has no convolution or product with constant weights to quantize")
    if cache is None and arguments.onnx is None:
        raise InvalidArgumentError(
            "every product has a scale for each token, and a cache would hold no range",
            hint="add --onnx FILE, or take neurenix export --precision int8 --accuracy per_token without data",
        )
    if arguments.onnx is not None:
        to_onnx(network, arguments.onnx)
    if cache is not None:
        cache.write(target)
    content: dict[str, Any] = {
        "model": arguments.model,
        "output": None if cache is None else str(target),
        "method": arguments.method,
        "accuracy": list(accuracy.tools),
        "onnx": arguments.onnx,
        "tensors": {} if cache is None else cache.ranges,
    }
    if not write_json(arguments.json, content):
        if cache is not None:
            print(f"{target}: the ranges of {len(cache.ranges)} tensors by {arguments.method}")
        if arguments.onnx is not None:
            print(f"{arguments.onnx}: the quantized model")
        else:
            given = "batches" if "smooth" in accuracy else "None"
            tools = f", accuracy={arguments.accuracy!r}" if accuracy else ""
            kept = f", keep={arguments.keep!r}" if arguments.keep else ""
            how = f'calibration=nx.quantization.Calibrator({given}, "{target}"){tools}{kept}'
            print(f'use it: optimize_model(..., precision="int8", {how})')
    return 0
