"""Options of `optimize_model`, and what it is given as a model."""

from __future__ import annotations

from pathlib import Path

from neurenix.hardware.tensorrt import TensorRTBackend
from tests.errors.wrong.common import SHAPES, backend, case, model, network, optimised


@case
def unknown_option(folder: Path) -> None:
    optimised(thread=2)


@case
def unknown_option_of_a_backend(folder: Path) -> None:
    TensorRTBackend(precison="fp16")


@case
def unknown_precision(folder: Path) -> None:
    optimised(precision="fp12")


@case
def int8_without_data_that_is_strict(folder: Path) -> None:
    optimised(precision="int8", providers=["cpu"], strict=True)


@case
def option_that_is_not_there_yet(folder: Path) -> None:
    optimised(target="sm_90")


@case
def calibration_of_another_precision(folder: Path) -> None:
    optimised(calibration=[])


@case
def calibration_without_batches(folder: Path) -> None:
    optimised(precision="int8", calibration=[])


@case
def unknown_provider(folder: Path) -> None:
    optimised(providers=["openvino"])


@case
def no_providers(folder: Path) -> None:
    optimised(providers=[])


@case
def optimization_level_too_high(folder: Path) -> None:
    optimised(optimization_level=9)


@case
def threads_none(folder: Path) -> None:
    optimised(threads=0)


@case
def workspace_as_text(folder: Path) -> None:
    optimised(workspace_size="1GB")


@case
def io_dtype_of_integers(folder: Path) -> None:
    optimised(io_dtype="int8")


@case
def exclude_without_provider(folder: Path) -> None:
    optimised(exclude=["Conv"])


@case
def exclude_everything(folder: Path) -> None:
    optimised(exclude={"cpu": ["Conv"]}, providers=["cpu"])


@case
def strict_as_a_number(folder: Path) -> None:
    optimised(strict=1)


@case
def timing_cache_as_a_flag(folder: Path) -> None:
    optimised(timing_cache=True)


@case
def progress_that_is_no_function(folder: Path) -> None:
    optimised(progress=True)


@case
def no_model(folder: Path) -> None:
    backend().optimize_model(42, SHAPES)


@case
def model_that_is_optimised_already(folder: Path) -> None:
    backend().optimize_model(model(), SHAPES)


@case
def values_of_inputs_for_a_network(folder: Path) -> None:
    backend().optimize_model(network(), SHAPES, input_values={"axes": [1]})
