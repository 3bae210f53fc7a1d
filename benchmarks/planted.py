"""Networks with an outlier that one tool of neurenix.quantization.accuracy is there for, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import neurenix as nx

Array = np.ndarray[Any, Any]
#: A network, and what draws a batch for it.
Planted = tuple[nx.Network, Callable[[np.random.Generator], Array]]


def channel_of_weights() -> Planted:
    """Of three convolutions the first one gives a channel 300 times too small, and the second one reads it with weights
    300 times too large: 8 bits of these leave nothing for the others."""
    random, network = np.random.default_rng(11), nx.Network("channel_of_weights")
    x = network.add_input("x", np.float32, (4, 3, 12, 12))
    for at, (inputs, outputs) in enumerate([(3, 16), (16, 16), (16, 8)]):
        weights = random.normal(size=(outputs, inputs, 3, 3)) / np.sqrt(9 * inputs)
        if at == 0:
            weights[0] /= 300
        if at == 1:
            weights[:, 0] *= 300
        x = _convolution(network, x, weights, f"conv{at}", relu=at < 2)
    network.mark_output(x, "y")
    return network, lambda random: random.normal(size=(4, 3, 12, 12)).astype(np.float32)


def channels_of_a_norm() -> Planted:
    """A LayerNormalization with two channels 60 times as large as the others, which the weights behind it make up for:
    one scale of 8 bits for all channels leaves little for the others."""
    random, network = np.random.default_rng(12), nx.Network("channels_of_a_norm")
    x = network.add_input("x", np.float32, (8, 32, 64))
    scale, shift = random.uniform(0.5, 1.5, 64), random.normal(size=64) / 10
    scale[[5, 40]] *= 60
    inner = random.normal(size=(64, 256)) / 8
    inner[[5, 40]] /= 60
    given = [x, *(_constant(network, name, values) for name, values in (("scale", scale), ("shift", shift)))]
    x = network.add_layer("LayerNormalization", given, {"axis": -1}, name="norm")[0]
    x = network.add_layer("MatMul", [x, _constant(network, "inner", inner)], {}, name="up")[0]
    x = network.add_layer("Gelu", [x], {}, name="gelu")[0]
    outer = _constant(network, "outer", random.normal(size=(256, 64)) / 16)
    network.mark_output(network.add_layer("MatMul", [x, outer], {}, name="down")[0], "y")
    return network, lambda random: random.normal(size=(8, 32, 64)).astype(np.float32)


def tokens_of_other_magnitudes() -> Planted:
    """Two products of tokens, one of sixteen of which is 100 times as large as the others: one scale of 8 bits for all
    leaves the others next to nothing. A LayerNormalization behind them makes all count alike."""
    random, network = np.random.default_rng(16), nx.Network("tokens_of_other_magnitudes")
    x = network.add_input("x", np.float32, (8, 32, 64))
    inner = _constant(network, "inner", random.normal(size=(64, 256)) / 8)
    x = network.add_layer("MatMul", [x, inner], {}, name="up")[0]
    x = network.add_layer("Gelu", [x], {}, name="gelu")[0]
    outer = _constant(network, "outer", random.normal(size=(256, 64)) / 16)
    x = network.add_layer("MatMul", [x, outer], {}, name="down")[0]
    given = [x, _constant(network, "scale", np.ones(64)), _constant(network, "shift", np.zeros(64))]
    network.mark_output(network.add_layer("LayerNormalization", given, {"axis": -1}, name="norm")[0], "y")

    def draw(random: np.random.Generator) -> Array:
        x = random.normal(size=(8, 32, 64))
        x[:, random.permutation(32)[:2]] *= 100
        return x.astype(np.float32)

    return network, draw


def channels_of_a_depthwise() -> Planted:
    """A depthwise convolution that reads channels of up to 100 times each other's range, behind a HardSwish, which no
    factor passes: one scale of 8 bits for all leaves little for most of them."""
    random, network = np.random.default_rng(15), nx.Network("channels_of_a_depthwise")
    x = network.add_input("x", np.float32, (4, 8, 16, 16))
    spread = np.exp(random.uniform(np.log(0.1), np.log(10), 32)).reshape(-1, 1, 1, 1)
    x = _convolution(network, x, random.normal(size=(32, 8, 3, 3)) / np.sqrt(72) * spread, "conv0", relu=False)
    x = network.add_layer("HardSwish", [x], {}, name="act0")[0]
    x = _convolution(network, x, random.normal(size=(32, 1, 3, 3)) / 3 / spread, "conv1", relu=False, group=32)
    x = network.add_layer("HardSwish", [x], {}, name="act1")[0]
    x = _convolution(network, x, random.normal(size=(8, 32, 1, 1)) / np.sqrt(32), "conv2", relu=False)
    network.mark_output(x, "y")
    return network, lambda random: random.normal(size=(4, 8, 16, 16)).astype(np.float32)


def weights_of_one_input() -> Planted:
    """Two products whose inputs hang together (8 directions of 128), and whose outputs have one weight 40 times as
    large as the others, which sets the step of all."""
    random, network = np.random.default_rng(13), nx.Network("weights_of_one_input")
    x = network.add_input("x", np.float32, (64, 128))
    for at in range(2):
        weights = random.normal(size=(128, 128)) / np.sqrt(128)
        weights[at] *= 40
        x = network.add_layer("MatMul", [x, _constant(network, f"w{at}", weights)], {}, name=f"product{at}")[0]
    network.mark_output(x, "y")
    directions = random.normal(size=(8, 128)) / np.sqrt(8)

    def draw(random: np.random.Generator) -> Array:
        x = random.normal(size=(64, 8)) @ directions + 0.05 * random.normal(size=(64, 128))
        x[:, :2] /= 40
        return x.astype(np.float32)

    return network, draw


def weight_of_each_output() -> Planted:
    """A convolution of 1x1, each output of which has one weight 60 times as large as the others, on an input that is
    nearly nothing: it sets the step, in which the others are off by up to a half. Inputs are around 1, so that what
    weights are off by shifts the outputs. Another convolution reads these."""
    random, network = np.random.default_rng(14), nx.Network("weight_of_each_output")
    x = network.add_input("x", np.float32, (4, 64, 12, 12))
    inner = random.normal(size=(32, 64, 1, 1)) / 8
    inner[:, 0] *= 60
    x = _convolution(network, x, inner, "conv0", relu=True)
    outer = random.normal(size=(16, 32, 3, 3)) / np.sqrt(288)
    network.mark_output(_convolution(network, x, outer, "conv1", relu=False), "y")

    def draw(random: np.random.Generator) -> Array:
        x = random.normal(1, 0.2, size=(4, 64, 12, 12))
        x[:, 0] /= 60
        return x.astype(np.float32)

    return network, draw


def _constant(network: nx.Network, name: str, values: Array) -> nx.Tensor:
    return network.add_constant(name, values.astype(np.float32))


def _convolution(network: nx.Network, x: nx.Tensor, weights: Array, name: str, relu: bool, group: int = 1) -> nx.Tensor:
    given = [x, _constant(network, f"{name}.weight", weights)]
    attrs = {"pads": [weights.shape[-1] // 2] * 4, "group": group}
    x = network.add_layer("Conv", given, attrs, name=name)[0]
    return network.add_layer("Relu", [x], {}, name=f"{name}.relu")[0] if relu else x


#: Each network, by the tool that is there for its outlier, and what that looks at.
PLANTED: dict[str, Callable[[], Planted]] = {
    "equalisation": channel_of_weights,
    "smooth": channels_of_a_norm,
    "per_token": tokens_of_other_magnitudes,
    "smooth, depthwise": channels_of_a_depthwise,
    "gptq": weights_of_one_input,
    "bias_correction": weight_of_each_output,
}
