"""`neurenix calibrate`: finds the ranges of a model's tensors, and writes them as a calibration cache."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from neurenix.cli.common import add_json, count, given_shapes, write_json
from neurenix.cli.models import add_model, load_model
from neurenix.errors import InvalidArgumentError
from neurenix.quantization import CalibrationCache, calibrate
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
    parser.add_argument("--samples", type=count, metavar="N", help="how many files are read at most")
    parser.add_argument("--shapes", metavar="NAME:SHAPE,...", help="of the inputs: input:1x3x224x224,mask:1x128")
    parser.add_argument("--input-shape", nargs="+", metavar="N", help="the same with spaces: 1 3 224 224")
    parser.add_argument("--threads", type=int, help="of the CPU (NEURENIX_THREADS, else all cores)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the cache."""
    target = Path(arguments.output or f"{Path(arguments.model).stem}.cache")
    if target.exists() and target.resolve() in (Path(arguments.model).resolve(), Path(arguments.data).resolve()):
        raise InvalidArgumentError("the cache would replace what it is made of", hint="give --output another name")
    check_writable(target)
    source = load_model(arguments.model, arguments.ckpt, arguments.config)
    calibrator = Keeping(arguments.data, limit=arguments.samples)
    calibrator.method = arguments.method
    calibrate(source, calibrator, given_shapes(arguments), threads=arguments.threads)
    if calibrator.kept is None:
        raise InvalidArgumentError("the model has no convolution or product with constant weights to quantize")
    cache = calibrator.kept
    cache.write(target)
    content: dict[str, Any] = {
        "model": arguments.model,
        "output": str(target),
        "method": arguments.method,
        "tensors": cache.ranges,
    }
    if not write_json(arguments.json, content):
        print(f"{target}: the ranges of {len(cache.ranges)} tensors by {arguments.method}")
        print(
            f'use it: optimize_model(..., precision="int8", calibration=nx.quantization.Calibrator(None, "{target}"))'
        )
    return 0
