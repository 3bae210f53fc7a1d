"""`export_to_tensorrt`: a model to an engine file, in the words of scripts that were written for TensorRT."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from neurenix import shapes
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.hardware.optimized import OptimizedModel
from neurenix.hardware.options import WORDS, check, eight_bits_of, is_among
from neurenix.importers.files import check_engine_name
from neurenix.inference.opening import Device
from neurenix.log import LOG
from neurenix.shapes import Shape

#: What is built where nobody says it.
PRECISION = "fp16"


def export_to_tensorrt(
    model: Any,
    output: str | os.PathLike[str] | None = None,
    input_shape: Any = None,
    precision: str | Collection[str] | None = None,
    *,
    device: Any = "cuda",
    workspace_size: float = 4,
    dynamic_shapes: bool = False,
    min_batch: int = 1,
    max_batch: int = 16,
    opt_batch: int = 4,
    calibration_data: Any = None,
    num_calibration_samples: int | None = None,
    benchmark: bool = False,
    benchmark_iterations: int = 100,
    **options: Any,
) -> OptimizedModel:
    """Builds a model for a device, and saves it at `output` where that is given: an engine file, or torch's .ts or .pt2
    with the engine in it.

    - `model`: as `optimize_model` takes it; `input_shape` too.
    - `precision`: "fp32", "tf32", "bf16", "fp16", "int8", "fp8" or "mixed", or 8 bits with the rest in 16
      ("int8+fp16"); None for fp16, or float32 where the device has no arithmetic for it. What is asked for and can't
      be had is an error.
    - `device`: "cuda", "cuda:1", "cpu", "auto"; without a GPU that can be used the processor, with a warning.
    - `workspace_size`: of a GPU's kernels, in GB.
    - `dynamic_shapes`: the batch may vary from `min_batch` to `max_batch`, and is fastest at `opt_batch`.
    - `calibration_data`, `num_calibration_samples`: for 8 bits and mixed, as `calibration` of `optimize_model`, and how
      many batches of it are read at most.
    - `benchmark`: print trtexec's summary of so many calls, `benchmark_iterations`.
    - `options`: the others of `optimize_model`.

    Raises `UnsupportedError` for a precision that can't be had, `InvalidArgumentError` for values that make no sense
    or an ending of `output` that is no engine's, and as `optimize_model` and `save`.
    """
    options |= _calibration(precision, calibration_data, num_calibration_samples)
    if not workspace_size >= 0:
        raise InvalidArgumentError("the workspace has a negative size", got=f"{workspace_size} GB")
    if output is not None:
        check_engine_name(Path(output))
    place = Device.of(device)
    wanted = _precision(precision, place)
    shape = _with_range(input_shape, min_batch, opt_batch, max_batch) if dynamic_shapes else input_shape
    built = place.backend.optimize_model(model, shape, wanted, int(workspace_size * 2**30), **options)
    if precision is not None:
        require_attained(built, wanted)
    if output is not None:
        built.save(output)
    if benchmark:
        print("\n".join(_summary(built, benchmark_iterations)))
    return built


def _calibration(precision: str | Collection[str] | None, data: Any, count: int | None) -> dict[str, Any]:
    """The option `calibration`."""
    if data is None and count is None:
        return {}
    if precision is None or eight_bits_of(check("precision", precision)) is None:
        raise InvalidArgumentError(
            "calibration_data is for a precision of 8 bits", got=repr(precision), hint='add precision="int8"'
        )
    if data is None:
        raise InvalidArgumentError("num_calibration_samples counts batches of calibration_data", hint="add it")
    from neurenix.quantization import Calibrator, EntropyCalibrator

    if count is None or isinstance(data, Calibrator):
        return {"calibration": data}
    return {"calibration": EntropyCalibrator(data, limit=count)}


def _precision(asked: str | Collection[str] | None, place: Device) -> str:
    found = place.backend.get_device_info(_index(place)).precisions
    able = [word for word in WORDS if is_among(word, found)]
    if asked is None:
        if PRECISION not in able:
            LOG.warning("%s has no arithmetic for %s: float32 is built", place.name, PRECISION)
        return PRECISION if PRECISION in able else "fp32"
    word = str(check("precision", asked))
    if word not in able:
        raise UnsupportedError(
            f"{place.name} has no arithmetic for {word}", expected=", ".join(able), got=word,
            hint="leave precision out, or ask for another",
        )  # fmt: skip
    return word


def _index(place: Device) -> int:
    return int(place.name.partition(":")[2] or 0)


def require_attained(built: OptimizedModel, precision: str) -> None:
    """Raises `UnsupportedError` where no layer of a model computes in the precision that was asked for."""
    from neurenix.cli.common import as_asked

    if not as_asked(built, precision):
        reason = "; ".join(built.report()["notes"]) or "a model without such layers"
        raise UnsupportedError(f"no layer computes in {precision}", got=reason, hint="leave precision out")


def _with_range(given: Any, low: int, opt: int, high: int) -> Any:
    """The shapes with this range of batches."""
    if given is None or isinstance(given, (str, list)):
        raise InvalidArgumentError(
            "dynamic_shapes is about the batch; the other dimensions must be known", expected="input_shape=(1, ...)",
            got=repr(given),
        )  # fmt: skip
    if shapes.is_by_name(given):
        return {name: _with_range(value, low, opt, high) for name, value in given.items()}
    dims = shapes.shape(given).opt
    return Shape((low, *dims[1:]), (opt, *dims[1:]), (high, *dims[1:])) if dims else given


def _summary(built: OptimizedModel, iterations: int) -> list[str]:
    from neurenix.cli.common import random_inputs
    from neurenix.cli.measure import Times, measure

    example = built.example()
    inputs = random_inputs(built.inputs, {name: array.shape for name, array in example.items()}, 0)
    times = measure({"neurenix": lambda: built(inputs)}, 0.2, 0, max(1, iterations))
    batch = next((array.shape[0] for array in inputs.values() if array.ndim), 1)
    return Times.of(times["neurenix"], batch).summary()
