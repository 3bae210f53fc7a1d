"""What each layer loses when it alone has 8 bits."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from neurenix import _native
from neurenix._native import Network
from neurenix.errors import InvalidArgumentError
from neurenix.quantization.accuracy import read
from neurenix.quantization.calibrate import PRODUCTS, Calibrated, float_network, found_ranges
from neurenix.quantization.calibrators import calibrator
from neurenix.quantization.compare import Reference, untimed


class LayerLoss(NamedTuple):
    """A product, and the least signal-to-noise ratio of an output, in dB, when it alone has 8 bits."""

    layer: str
    decibels: float


def sensitivity(
    model: Any,
    data: Any,
    input_shapes: Any = None,
    *,
    method: str = "entropy",
    accuracy: Any = None,
    threads: int | None = None,
) -> list[LayerLoss]:
    """The loss of each product that `calibrate` would quantize, the greatest first: those are what `keep=` is for.

    `model`, `data`, `method`, `accuracy`: as for `calibrate`. Outputs are compared with those in float32 on the first
    batches of `data`. One engine is built for each product.

    Raises as `calibrate`.
    """
    asked = read(accuracy)
    network, options = float_network(model, input_shapes, threads)
    given = calibrator(data, method)
    found = found_ranges(network, given, options, search=True, accuracy=asked)
    if not given.seen:
        raise InvalidArgumentError("there is no batch to compare on", hint="give batches, not a cache alone")
    return losses(found, Reference(network, given.seen, [], options), [], options)


def products(network: Network, keep: Collection[str] = ()) -> list[str]:
    """The layers of a network that get 8 bits, by name, but for those that `keep` names, or the nodes that they come
    from."""
    names = []
    for layer in network.layers:
        if layer.name in keep or not set(layer.sources).isdisjoint(keep):
            continue
        weights = layer.inputs[1] if len(layer.inputs) > 1 else None
        if layer.op in PRODUCTS and weights is not None and weights.numpy() is not None:
            names.append(layer.name)
    return names


def losses(
    calibrated: Calibrated,
    reference: Reference,
    profiles: Sequence[Any],
    options: Mapping[str, Any],
    rough: bool = False,
) -> list[LayerLoss]:
    """As `sensitivity`, for a network that is calibrated. `rough`: biases are not corrected."""
    names = products(calibrated.full, calibrated.keep)
    found = []
    for name in names:
        alone = calibrated.quantized([other for other in names if other != name], rough=rough)
        engine = _native.Engine.build(alone, list(profiles), untimed(options))
        found.append(LayerLoss(name, least(reference, engine)))
    return sorted(found, key=lambda loss: loss.decibels)


def least(reference: Reference, engine: _native.Engine) -> float:
    """The least signal-to-noise ratio of an output in dB; infinity where there is none of floating point."""
    return min(reference.losses(engine).values(), default=math.inf)
