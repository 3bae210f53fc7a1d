"""From a network and batches to a network with Quantize and Dequantize layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neurenix import _native
from neurenix._native import Network
from neurenix.arrays import Array
from neurenix.errors import InvalidArgumentError
from neurenix.quantization.calibrators import Calibrator, calibrator

#: What each word of `quantization_points` says of the steps that a range consists of.
STEPS = {False: 128, True: 255}


def calibrate(
    model: Any,
    data: Any,
    input_shapes: Any = None,
    *,
    method: str = "entropy",
    keep: Sequence[str] = (),
    threads: int | None = None,
) -> Network:
    """A network in 8 bits: the products of `model` between Quantize and Dequantize layers, on the ranges that `data`
    shows.

    `model`: as `optimize_model` takes it. `data`: a `Calibrator`, or batches, from which ranges follow by `method`:
    "entropy", "minmax", "percentile" (99.99) or "mse". `keep`: names of layers, or of nodes of the source model,
    that stay
    in floating point. Weights are int8 with a scale for each channel. What comes out is optimised like any other
    network:
    `nx.optimize(network)`.

    Raises `InvalidArgumentError` where there is no batch or `keep` names no layer, and as the importers do.
    """
    from neurenix.hardware.options import Options
    from neurenix.importers.dispatch import to_network

    network = to_network(model, input_shapes, {}, False)
    options = Options.of(threads=threads).native(["cpu"])
    return quantized(network, calibrator(data, method), options, keep)


def quantize_weights(network: Network, keep: Sequence[str] = ()) -> Network:
    """A network whose products have weights of 8 bits, a scale for each channel, and compute in floating point."""
    full = network.in_full()
    _check_kept(full, keep)
    return full.quantized(None, list(keep))


def quantized(
    network: Network,
    given: Calibrator,
    options: Mapping[str, Any],
    keep: Sequence[str] = (),
) -> Network:
    """As `calibrate`, by native options."""
    full = network.in_full()
    _check_kept(full, keep)
    points = full.quantization_points(list(keep))
    if not points:
        return full
    inputs = [(tensor.name, tensor.shape) for tensor in network.inputs]
    run = _probe(full, points, options)
    ranges = given.ranges({name: STEPS[unsigned] for _, name, unsigned in points}, inputs, run)
    return full.quantized(ranges, list(keep))


def _check_kept(network: Network, keep: Sequence[str]) -> None:
    known = {name for layer in network.layers for name in (layer.name, *layer.sources)}
    for name in keep:
        if name not in known:
            near = _native.nearest(name, sorted(known))
            raise InvalidArgumentError(
                f"there is no layer {name!r} to keep", hint=f"did you mean {near!r}?" if near else None
            )


def _probe(full: Network, points: Sequence[tuple[_native.Tensor, str, bool]], options: Mapping[str, Any]) -> Any:
    """Runs a batch and gives the tensors to quantize, by name."""
    inputs = {tensor.name for tensor in full.inputs}
    direct = {name: tensor.name for tensor, name, _ in points if tensor.name in inputs}
    inner = [(tensor, name) for tensor, name, _ in points if name not in direct]
    copy, tensors = full.copy([tensor for tensor, _ in inner])
    for tensor, (_, name) in zip(tensors, inner, strict=True):
        copy.mark_output(tensor, name)
    engine = None
    if inner:
        level = min(int(options.get("optimization_level", 1)), 1)
        settings = {name: value for name, value in options.items() if name not in ("io", "samples")}
        settings |= {"verify": False, "compute": "float32", "tf32": False, "refittable": False}
        settings["optimization_level"] = level
        # Batches may have other sizes than the profiles.
        engine = _native.Engine.build(copy, [], settings)

    def run(batch: dict[str, Array]) -> dict[str, Array]:
        found = {} if engine is None else dict(engine.run(batch))
        return found | {name: batch[source] for name, source in direct.items()}

    return run
