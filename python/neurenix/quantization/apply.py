"""precision="int8" and "fp8": places quantization in a network, and says what it loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from neurenix._native import Network
from neurenix.arrays import Array
from neurenix.errors import UnsupportedError
from neurenix.log import LOG
from neurenix.quantization.accuracy import PER_TOKEN, Accuracy
from neurenix.quantization.calibrate import (
    NO_TOOLS,
    Calibrated,
    as_input,
    found_ranges,
    has_integers,
    is_explicit,
    quantize_weights,
    takes_tokens,
    without_ranges,
)
from neurenix.quantization.calibrators import Calibrator, calibrator
from neurenix.quantization.compare import COMPARED, as_called
from neurenix.quantization.region_benchmark import slower_in_8_bits

#: Below this signal-to-noise ratio, in dB, results have little to do with those of float32.
POOR = 10.0

WITHOUT = (
    'precision="int8" without calibration: the weights alone have 8 bits, and products compute in floating point; '
    "batches of inputs to calibrate on would make them faster"
)
FLOATS = 'precision="fp8": the weights alone are float8_e4m3fn, and products compute in floating point: {reason}'
EXPLICIT = (
    'precision="fp8": the model is quantized already, and stays as it is; products of its tensors in float8_e4m3fn '
    "compute between the roundings in float32: {reason}"
)
#: With `strict` nothing is timed: what was asked for is to be had in full.
STRICT = "{dtype}: strict: all products have 8 bits, whether or not they are faster in {rest}"
IN_FLOATS = "{provider} has no kernels for products of 8 bits: it computes between the roundings in floating point"
NO_RANGES, NO_ARITHMETIC = "there is no calibration=", "nothing here computes in floats of 8 bits"


def in_8_bits(
    network: Network,
    precision: str,
    calibration: Any,
    profiles: Sequence[Any],
    options: Mapping[str, Any],
    accuracy: Accuracy = NO_TOOLS,
    keep: Sequence[str] = (),
) -> tuple[Network, list[dict[str, Array]], list[str]]:
    """The network with Quantize and Dequantize layers, batches that verification may look at, and what the report says
    of the tools of `accuracy` and of what is faster in floats. `keep`: names of layers, or of nodes of the source
    model, that stay in floating point.

    One that has such layers stays as it is, with a warning where there is `calibration`; without that, and with "fp8"
    where nothing multiplies in it, the weights alone are quantized, with a warning; with scales for each token, those
    of matrix products, whose activations have 8 bits too. Raises `UnsupportedError` with
    `strict` where the provider has no kernels for the precision.
    """
    from neurenix.hardware.options import has_int8, is_in_floats

    first = options["providers"][0]
    if precision == "fp8":
        return _in_fp8(network, calibration, profiles, options, keep)
    if is_in_floats(first):
        _fall_back(IN_FLOATS.format(provider=first), _instead_of_int8(first, has_int8("cpu")), options)
    if is_explicit(network):
        _tell_unused(("calibration", calibration is not None), ("accuracy", accuracy), ("keep", keep))
        return network, [], []
    if calibration is None and PER_TOKEN in accuracy and takes_tokens(options):
        found = without_ranges(network, options, keep)
        made, notes = _placed(found, [], profiles, options, "int8")
        return made, [], notes
    if calibration is None:
        _fall_back(WITHOUT, "give calibration=", options)
        return quantize_weights(network, keep, refittable=options["refittable"]), [], []
    return _calibrated(network, calibrator(calibration), profiles, options, "int8", accuracy, keep)


def stated_in_8_bits(network: Network, options: Mapping[str, Any]) -> list[str]:
    """What the report says where a network states products of integers of 8 bits itself, for a provider that computes
    them in floats; the log warns of it. Raises `UnsupportedError` with `strict`.
    """
    if not has_integers(network):
        return []
    first = options["providers"][0]
    text = IN_FLOATS.format(provider=first)
    _fall_back(text, "leave strict out, or give the model that was quantized", options)
    return [text]


def _calibrated(
    network: Network,
    given: Calibrator,
    profiles: Sequence[Any],
    options: Mapping[str, Any],
    dtype: str,
    accuracy: Accuracy = NO_TOOLS,
    keep: Sequence[str] = (),
) -> tuple[Network, list[dict[str, Array]], list[str]]:
    """As `in_8_bits`, by the ranges that a calibrator finds."""
    found = found_ranges(network, given, options, keep, accuracy=accuracy)
    inputs = {tensor.name: tensor for tensor in network.inputs}
    batches = ({name: as_input(array, inputs[name]) for name, array in batch.items()} for batch in given.seen)
    seen = [as_called(batch, options) for batch in batches]
    made, notes = _placed(found, seen, profiles, options, dtype)
    return made, seen, notes


def _placed(
    found: Calibrated,
    seen: Sequence[dict[str, Array]],
    profiles: Sequence[Any],
    options: Mapping[str, Any],
    dtype: str,
) -> tuple[Network, list[str]]:
    """The network with products in 8 bits where these are faster, and what the report says."""
    slower, notes = slower_in_8_bits(found, seen, profiles, options, dtype)
    if found.has_8_bits and options["strict"]:
        notes = [STRICT.format(dtype=dtype.partition("_")[0], rest=options["compute"])]
    made = found.quantized(sorted(slower), bool(options["refittable"]), dtype=dtype)
    return made, found.notes(sorted(slower), dtype) + notes


def _in_fp8(
    network: Network, calibration: Any, profiles: Sequence[Any], options: Mapping[str, Any], keep: Sequence[str]
) -> tuple[Network, list[dict[str, Array]], list[str]]:
    """As `in_8_bits`, for floats of 8 bits."""
    from neurenix.hardware.options import has_fp8

    multiplies = has_fp8(options["providers"][0])
    reason = NO_RANGES if multiplies else NO_ARITHMETIC
    if is_explicit(network):
        if not multiplies:
            _fall_back(EXPLICIT.format(reason=reason), 'take precision="int8", or "bf16"', options)
        _tell_unused(("calibration", calibration is not None), ("keep", keep))
        return network, [], []
    # Floats of 8 bits reach far: the greatest magnitude costs no digits.
    given = None if calibration is None else calibrator(calibration, "minmax")
    if given is not None and multiplies:
        return _calibrated(network, given, profiles, options, "float8_e4m3fn", keep=keep)
    hint = "give calibration=" if multiplies else 'take precision="int8" with calibration=, or "bf16"'
    _fall_back(FLOATS.format(reason=reason), hint, options)
    inputs = [(tensor.name, tensor.shape) for tensor in network.inputs]
    seen = [] if given is None else [as_called(batch, options) for batch in islice(given.read(inputs), COMPARED)]
    made = quantize_weights(network, keep, dtype="float8_e4m3fn", refittable=options["refittable"])
    return made, seen, []


def _tell_unused(*options: tuple[str, Any]) -> None:
    """Warns of what was given for a model that says itself what is quantized."""
    given = [f"`{name}`" for name, value in options if value]
    if given:
        unused = " and ".join(given)
        LOG.warning("the model is quantized already: %s %s not used", unused, "is" if len(given) == 1 else "are")


def _instead_of_int8(provider: str, on_processor: bool) -> str:
    """What to ask for where a provider has no kernels for products of 8 bits."""
    if provider == "cpu":
        return 'take precision="fp32"'
    return 'take precision="fp16"' + (", or the cpu provider" if on_processor else "")


def _fall_back(text: str, hint: str, options: Mapping[str, Any]) -> None:
    if options["strict"]:
        raise UnsupportedError(text, hint=hint)
    LOG.warning("%s", text)


def tell(precision: str, found: Mapping[str, float]) -> list[str]:
    """What the report says of losses; the log warns of those that are too large."""
    notes = []
    for name, decibels in found.items():
        note = f"{precision}: the signal-to-noise ratio of output {name!r} against float32 is {decibels:.1f} dB"
        notes.append(note)
        if decibels < POOR:
            LOG.warning("%s: calibrate on more or other data, or keep layers in floating point", note)
    return notes
