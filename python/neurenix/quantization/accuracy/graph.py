"""A network as the tools look at it: products with constant weights, who gives and who reads a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from neurenix._native import Layer, Network, Tensor
from neurenix.arrays import Array

#: Ops that products come from.
PRODUCTS = ("Conv", "ConvTranspose", "MatMul")
#: The names of the layers that give weights of 8 bits, by that of the product.
WEIGHTS = re.compile(r"(.*)\.weight\.dequantize(?:~\d+)?", re.DOTALL)


class InEightBits(NamedTuple):
    """A product of a quantized network."""

    #: Its name in the network that was quantized.
    name: str
    layer: Layer
    #: The layer that gives its weights.
    weights: Layer


class Read(NamedTuple):
    """That a layer reads a tensor as its input of this number."""

    layer: Layer
    at: int


class Bias(NamedTuple):
    """A constant that is added to the result of a product."""

    layer: Layer
    at: int
    array: Array
    #: The result with it.
    result: Tensor


class Graph:
    """Who gives each tensor of a network, and who reads it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.layers = network.layers
        self.makers: dict[Tensor, Layer] = {}
        self.readers: dict[Tensor, list[Read]] = {}
        self.results = set(network.outputs.values())
        for layer in self.layers:
            self.makers.update(dict.fromkeys(layer.outputs, layer))
            for at, tensor in enumerate(layer.inputs):
                if tensor is not None:
                    self.readers.setdefault(tensor, []).append(Read(layer, at))

    def sole_reader(self, tensor: Tensor) -> Read | None:
        """Who reads a tensor that has one reader and is no result."""
        readers = self.readers.get(tensor, [])
        return readers[0] if len(readers) == 1 and tensor not in self.results else None

    def products(self) -> Iterator[Product]:
        """The products whose weights are constants of float32: what quantization gives 8 bits."""
        for layer in self.layers:
            found = product(layer)
            if found is not None:
                yield found

    def in_8_bits(self) -> Iterator[InEightBits]:
        """Of a quantized network the products whose weights have 8 bits."""
        for layer in self.layers:
            weights = layer.inputs[1] if layer.op in PRODUCTS else None
            maker = self.makers.get(weights) if weights is not None else None
            # Layers may get new numbers behind their names while a network is quantized; the layers of weights say
            # which product they are for.
            found = WEIGHTS.fullmatch(maker.name) if maker is not None and maker.op == "DequantizeLinear" else None
            if maker is not None and found is not None:
                yield InEightBits(found[1], layer, maker)

    def scale(self, tensor: Tensor | None) -> Array | None:
        """The constant scale that a Dequantize layer gives a tensor in."""
        maker = self.makers.get(tensor) if tensor is not None else None
        scale = maker.inputs[1] if maker is not None and maker.op == "DequantizeLinear" else None
        return None if scale is None else scale.numpy()

    def is_per_token(self, tensor: Tensor | None) -> bool:
        """Whether a tensor is made of integers with a scale for each token."""
        maker = self.makers.get(tensor) if tensor is not None else None
        source = maker.inputs[0] if maker is not None and maker.op == "DequantizeLinear" else None
        return source in self.makers and self.makers[source].op == "DynamicQuantizePerToken"

    def bias(self, of: Product) -> Bias | None:
        """What is added to a product's result, channel by channel."""
        output = of.layer.outputs[0]
        if of.layer.op != "MatMul":
            given = of.layer.inputs[2] if len(of.layer.inputs) > 2 else None
            array = None if given is None else given.numpy()
            return None if array is None else Bias(of.layer, 2, np.asarray(array), output)
        reader = self.sole_reader(output)
        if reader is None or reader.layer.op != "Add":
            return None
        other = reader.layer.inputs[1 - reader.at]
        array = None if other is None else other.numpy()
        if array is None or np.asarray(array).shape[-1:] != (of.outputs,) or np.asarray(array).size != of.outputs:
            return None
        return Bias(reader.layer, 1 - reader.at, np.asarray(array), reader.layer.outputs[0])


class Product:
    """A convolution or matrix product with constant weights.

    Its weights are seen as [group, first, second, rest]; of the two channel axes one counts the outputs of a group,
    and the other one its inputs.
    """

    def __init__(self, layer: Layer, weights: Array) -> None:
        self.layer = layer
        self.name = layer.name
        self.weights = weights
        groups = 1 if layer.op == "MatMul" else int(layer.attrs.get("group", 1))
        first, second = weights.shape[0] // groups, weights.shape[1]
        self.view = (groups, first, second, -1)
        #: Whether the first channel axis counts outputs.
        self.outputs_first = layer.op == "Conv" or bool(layer.attrs.get("transB"))
        self.outputs = groups * (first if self.outputs_first else second)
        self.inputs = groups * (second if self.outputs_first else first)
        #: Where channels are in what it reads and gives.
        self.channel_axis = -1 if layer.op == "MatMul" else 1

    @property
    def source(self) -> Tensor:
        """What it reads."""
        found = self.layer.inputs[0]
        assert found is not None
        return found

    def peaks(self, weights: Array, of_inputs: bool) -> Array:
        """The greatest magnitude of the weights of each input channel or output channel."""
        axis = 2 if of_inputs == self.outputs_first else 1
        others = (3, 3 - axis)
        found: Array = np.abs(weights.reshape(self.view)).max(axis=others).reshape(-1)
        return found

    def factors(self, scale: Array, of_inputs: bool) -> Array:
        """A vector of a number for each input channel or output channel, as what weights are multiplied by."""
        groups, first, second, _ = self.view
        ones = (1,) * (self.weights.ndim - 2)
        if of_inputs != self.outputs_first:
            return scale.reshape(groups * first, 1, *ones)
        by_group = scale.reshape(groups, 1, second)
        return np.broadcast_to(by_group, (groups, first if groups > 1 else 1, second)).reshape(-1, second, *ones)


def product(layer: Layer) -> Product | None:
    """A layer as a product whose weights can have 8 bits, as `src/precision/points.rs` has it; None for any other."""
    if layer.op not in PRODUCTS or layer.attrs.get("transA"):
        return None
    given = layer.inputs[1]
    source = layer.inputs[0]
    array = None if given is None else given.numpy()
    if array is None or source is None or source.numpy() is not None:
        return None
    weights = np.asarray(array)
    if weights.dtype != np.float32 or not weights.size or (layer.op == "MatMul" and weights.ndim != 2):
        return None
    return Product(layer, weights) if weights.ndim >= 2 else None
