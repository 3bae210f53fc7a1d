"""Bias correction (Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section
4.2, in the empirical form of its appendix): what 8 bits shift each channel of a product's result by on the batches is
taken off its bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from neurenix import _native
from neurenix._native import Layer, Network, Tensor
from neurenix.arrays import Array
from neurenix.quantization.accuracy.editing import Edits
from neurenix.quantization.accuracy.graph import Graph, InEightBits

#: Builds an engine of float32 for a network.
Build = Callable[[Network], _native.Engine]
Batch = Mapping[str, Array]
#: The greatest integer of a bias: the greatest float32 that is an int32.
MOST_IN_32_BITS = 2**31 - 128


def targets(graph: Graph) -> list[InEightBits]:
    """The products of a quantized network whose channels are known."""
    return [product for product in graph.in_8_bits() if isinstance(_width(product.layer), int)]


def corrections(full: Network, quantized: Network, batches: Sequence[Batch], build: Build) -> dict[str, Array]:
    """By the names of products, what is to be added to each channel of their results: its mean in `full`, less its mean
    in `quantized`, where all products in front of it have been corrected; averaged over the batches.

    Two engines run. The first one gives the means in float32; the second one is given these, and corrects each product
    in the graph itself, before the next one reads it, so that one run of a batch corrects all in their order.
    """
    names = [product.name for product in targets(Graph(quantized))]
    if not names:
        return {}
    exact, corrected = build(_measuring(full, names)), build(_correcting(quantized))
    sums: dict[str, Array] = {}
    for batch in batches:
        means = dict(exact.run(dict(batch)))
        for name, shift in dict(corrected.run({**batch, **means})).items():
            sums[name] = sums.get(name, 0.0) + np.asarray(shift, np.float64)
    return {name: sums[f"{name}.shift"].reshape(-1) / len(batches) for name in names}


def apply(quantized: Network, found: Mapping[str, Array]) -> Network:
    """The network with corrections added to its biases: in 32 bits, where a bias has these."""
    # What was given stays as it is.
    copy = quantized.rewired([])
    edits, graph = Edits(copy), Graph(copy)
    for product in targets(graph):
        _correct(graph, product.layer, found[product.name], edits)
    return edits.applied() if edits else quantized


def _width(layer: Layer) -> int | str:
    return layer.outputs[0].shape[_axis(layer)]


def _along(layer: Layer) -> list[int]:
    """The shape of a vector with a number for each channel of the result, as it is added to that."""
    return [int(_width(layer)) if at == _axis(layer) else 1 for at in range(len(layer.outputs[0].shape))]


def _mean(network: Network, layer: Layer, output: Tensor) -> Tensor:
    axes = [at for at in range(len(output.shape)) if at != _axis(layer)]
    attrs = {"axes": axes, "keepdims": 1}
    return network.add_layer("ReduceMean", [output], attrs, f"{layer.name}.mean")[0] if axes else output


def _axis(layer: Layer) -> int:
    return len(layer.outputs[0].shape) - 1 if layer.op == "MatMul" else 1


def _measuring(full: Network, names: Sequence[str]) -> Network:
    """The network with the means of these products' channels for its results."""
    layers = [layer for layer in full.layers if layer.name in set(names)]
    copy, outputs = full.copy([layer.outputs[0] for layer in layers])
    for layer, output in zip(layers, outputs, strict=True):
        copy.mark_output(_mean(copy, layer, output), f"{layer.name}.wanted")
    return copy


def _correcting(quantized: Network) -> Network:
    """The quantized network with a further input for each product, the means of its channels in float32, and for its
    results what these are off by: `y' = y + (wanted - mean(y))`, where `y'` is read in the place of `y`."""
    copy, _ = quantized.copy([])
    graph = Graph(copy)
    edits = Edits(copy)
    for name, layer, _ in targets(graph):
        wanted = copy.add_input(f"{name}.wanted", np.float32, _along(layer))
        mean = _mean(copy, layer, layer.outputs[0])
        shift = copy.add_layer("Sub", [wanted, mean], {}, f"{name}.shift")[0]
        copy.mark_output(shift, f"{name}.shift")
        _insert(graph, layer, shift, edits)
    return edits.applied()


def _insert(graph: Graph, layer: Layer, by: Tensor, edits: Edits) -> None:
    """Whoever reads a product's result reads it with something added."""
    output = layer.outputs[0]
    added = edits.network.add_layer("Add", [output, by], {}, f"{layer.name}.corrected")[0]
    for reader in graph.readers.get(output, []):
        edits.let_read(reader.layer, reader.at, added)
    for name, tensor in graph.network.outputs.items():
        if tensor == output:
            edits.replace_result(name, added)


def _correct(graph: Graph, layer: Layer, shift: Array, edits: Edits) -> None:
    if layer.op == "MatMul":
        reader = graph.sole_reader(layer.outputs[0])
        other = reader.layer.inputs[1 - reader.at] if reader is not None and reader.layer.op == "Add" else None
        array = None if other is None else other.numpy()
        if reader is not None and array is not None and array.size == len(shift) == array.shape[-1]:
            new = (np.asarray(array, np.float64) + shift.reshape(array.shape)).astype(np.float32)
            edits.let_read(reader.layer, 1 - reader.at, edits.constant(f"{layer.name}.bias", new))
            return
    elif len(layer.inputs) < 3 or layer.inputs[2] is None:
        edits.let_read(layer, 2, _new_bias(graph, layer, shift, edits))
        return
    elif _add_to_bias(graph, layer, shift, edits):
        return
    by = edits.constant(f"{layer.name}.correction", shift.reshape(_along(layer)).astype(np.float32))
    _insert(graph, layer, by, edits)


def _new_bias(graph: Graph, layer: Layer, shift: Array, edits: Edits) -> Tensor:
    """A bias where there was none: in 32 bits, in the scale of the products, for a convolution."""
    scales = [graph.scale(tensor) for tensor in layer.inputs[:2]]
    if layer.op != "Conv" or scales[0] is None or scales[1] is None:
        return edits.constant(f"{layer.name}.bias", shift.astype(np.float32))
    scale = (scales[0].reshape(-1) * scales[1].reshape(-1)).astype(np.float32)
    integers = edits.constant(f"{layer.name}.bias.quantize", _in_32_bits(shift / scale.astype(np.float64)))
    inputs = [integers, edits.constant(f"{layer.name}.bias.scale", scale)]
    return edits.network.add_layer("DequantizeLinear", inputs, {}, f"{layer.name}.bias.dequantize")[0]


def _add_to_bias(graph: Graph, layer: Layer, shift: Array, edits: Edits) -> bool:
    """Whether a bias could be corrected: it is a constant, or one in 32 bits."""
    bias = layer.inputs[2]
    assert bias is not None
    array = bias.numpy()
    if array is not None:
        new = (np.asarray(array, np.float64) + shift).astype(np.float32)
        edits.let_read(layer, 2, edits.constant(f"{layer.name}.bias", new))
        return True
    maker, scale = graph.makers.get(bias), graph.scale(bias)
    stored = maker.inputs[0].numpy() if maker is not None and maker.inputs[0] is not None else None
    if maker is None or scale is None or stored is None:
        return False
    integers = _in_32_bits(np.asarray(stored, np.float64) + shift / np.asarray(scale, np.float64))
    edits.let_read(maker, 0, edits.constant(f"{layer.name}.bias.quantize", integers))
    return True


def _in_32_bits(values: Array) -> Array:
    found: Array = np.clip(np.rint(values), -MOST_IN_32_BITS, MOST_IN_32_BITS).astype(np.int32)
    return found
