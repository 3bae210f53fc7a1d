"""What 8 bits of residuals cost: random residual networks in int8 against float32, by three ways to place them.

    python -m benchmarks.accuracy_residuals --networks 60 --seed 0

"none" leaves every residual in floats, "all" rounds each, "guarded" is what a calibration decides
(src/precision/guard.rs). Signal-to-noise ratios are those of fresh batches; the least of a network's outputs counts.
Prints a table by kind of network and writes benchmarks/results/accuracy_residuals.json; with ONNX files as arguments,
the same for these.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import neurenix as nx
from benchmarks import measure
from neurenix import _native
from neurenix.quantization.calibrate import Calibrated, float_network, found_ranges
from neurenix.quantization.calibrators import Calibrator
from neurenix.quantization.compare import Reference, untimed

Array = np.ndarray[Any, Any]
#: Batches to calibrate on.
CALIBRATION = 4


class Maker:
    """A random network on its way. `strength`: how large its branches are beside their stream, about, if not at
    random."""

    def __init__(self, seed: str, shape: tuple[int, ...], strength: float | None = None) -> None:
        self.strength = strength
        self.random = np.random.default_rng([ord(letter) for letter in seed])
        self.network = nx.Network("residuals")
        self.x = self.network.add_input("x", np.float32, shape)
        self._layers = 0

    def add(self, op: str, *inputs: Any, **attrs: Any) -> Any:
        """A layer, of a name that quantization leaves."""
        self._layers += 1
        return self.network.add_layer(op, list(inputs), attrs, name=f"{op.lower()}{self._layers}")[0]

    def constant(self, *shape: int, gain: float = 1.0) -> Any:
        """Normal weights that keep the power of what they are multiplied with, times the square of the gain."""
        values = self.random.standard_normal(shape) * gain / np.sqrt(max(int(np.prod(shape[1:])), 1))
        self._layers += 1
        return self.network.add_constant(f"weights{self._layers}", values.astype(np.float32))

    def conv(self, x: Any, channels: int, extent: int = 3, gain: float = 1.0, stride: int = 1) -> Any:
        """A convolution with a bias that keeps the size of the image but for its stride."""
        bias = self.network.add_constant("", (0.1 * self.random.standard_normal(channels)).astype(np.float32))
        weights = self.constant(channels, int(x.shape[1]), extent, extent, gain=gain)
        return self.add("Conv", x, weights, bias, pads=[extent // 2] * 4, strides=[stride, stride])


def gain(m: Maker) -> float:
    """From small branches to those as large as their stream."""
    if m.strength is not None:
        return m.strength
    return float(np.exp(m.random.uniform(np.log(0.03), np.log(1.5))))


def activated_branches(m: Maker) -> Any:
    """x + SiLU(conv(...)), as detectors have it: branches of one strength or of several."""
    op = str(m.random.choice(["Silu", "Relu", "LeakyRelu", "HardSwish", "Gelu"]))
    y = m.add(op, m.conv(m.x, 24))
    common = gain(m)
    varied = m.random.random() < 0.5
    for _ in range(int(m.random.integers(2, 13))):
        inner = m.add(op, m.conv(y, 24, extent=int(m.random.choice([1, 3])), gain=1.6))
        y = m.add("Add", y, m.add(op, m.conv(inner, 24, gain=2 * (gain(m) if varied else common))))
    return m.conv(y, 16, extent=1)


def plain_residuals(m: Maker) -> Any:
    """Blocks of a ResNet, which halve the image here and there."""
    y = m.add("Relu", m.conv(m.x, 16, gain=1.6))
    strength, channels = gain(m), 16
    for _ in range(int(m.random.integers(3, 11))):
        stride = 2 if m.random.random() < 0.2 and y.shape[2] > 4 else 1
        inner = m.add("Relu", m.conv(y, channels * stride, stride=stride, gain=1.6))
        if m.random.random() < 0.5:
            inner = m.add("Relu", m.conv(inner, channels * stride, extent=1, gain=1.6))
        channels *= stride
        shortcut = y if stride == 1 else m.conv(y, channels, extent=1, stride=2)
        y = m.add("Relu", m.add("Add", m.conv(inner, channels, gain=1.4 * strength), shortcut))
    y = m.add("GlobalAveragePool", y) if m.random.random() < 0.7 else y
    return m.conv(y, 10, extent=1)


def gated(m: Maker) -> Any:
    """Inverted residuals with squeeze-and-excitation, without an activation behind the sum."""
    y = m.add("HardSwish", m.conv(m.x, 16))
    strength = gain(m)
    for _ in range(int(m.random.integers(3, 9))):
        inner = m.add("HardSwish", m.conv(y, 48, extent=1, gain=1.5))
        depthwise = m.add("Conv", inner, m.constant(48, 1, 3, 3, gain=1.5), group=48, pads=[1] * 4)
        inner = m.add("HardSwish", depthwise)
        squeezed = m.add("Relu", m.conv(m.add("GlobalAveragePool", inner), 12, extent=1))
        inner = m.add("Mul", inner, m.add("HardSigmoid", m.conv(squeezed, 48, extent=1)))
        y = m.add("Add", y, m.conv(inner, 16, extent=1, gain=3 * strength))
    return m.conv(m.add("GlobalAveragePool", y), 10, extent=1)


def detector(m: Maker) -> Any:
    """Cross-stage blocks, joined, pooled by windows, enlarged, as of a small YOLO."""
    strength = gain(m)

    def stage(x: Any, channels: int, blocks: int) -> Any:
        half = channels // 2
        y = m.add("Silu", m.conv(x, half, extent=1, gain=1.6))
        for _ in range(blocks):
            inner = m.add("Silu", m.conv(y, half, extent=1, gain=1.6))
            y = m.add("Add", y, m.add("Silu", m.conv(inner, half, gain=2 * strength)))
        both = m.add("Concat", y, m.add("Silu", m.conv(x, half, extent=1, gain=1.6)), axis=1)
        return m.add("Silu", m.conv(both, channels, extent=1, gain=1.6))

    fine = stage(m.add("Silu", m.conv(m.x, 16)), 16, int(m.random.integers(1, 4)))
    coarse = stage(m.add("Silu", m.conv(fine, 32, stride=2, gain=1.6)), 32, int(m.random.integers(1, 7)))
    pooled = [coarse]
    for _ in range(3):
        pooled.append(m.add("MaxPool", pooled[-1], kernel_shape=[5, 5], pads=[2] * 4))
    coarse = m.add("Silu", m.conv(m.add("Concat", *pooled, axis=1), 32, extent=1, gain=1.2))
    scales = m.network.add_constant("", np.array([1, 1, 2, 2], np.float32))
    m.network.mark_output(m.conv(coarse, 18, extent=1), "coarse")
    enlarged = m.network.add_layer("Resize", [coarse, None, scales], {"mode": "nearest"})[0]
    return m.conv(stage(m.add("Concat", enlarged, fine, axis=1), 16, 1), 18, extent=1)


KINDS: dict[str, tuple[Callable[[Maker], Any], tuple[int, ...]]] = {
    "branches behind activations": (activated_branches, (2, 3, 16, 16)),
    "ResNets": (plain_residuals, (2, 3, 32, 32)),
    "squeeze-and-excitation": (gated, (2, 3, 16, 16)),
    "detectors": (detector, (2, 3, 32, 32)),
}


def network(kind: str, seed: str, strength: float | None = None) -> nx.Network:
    """A random network of a kind."""
    make, shape = KINDS[kind]
    maker = Maker(f"{kind} {seed}", shape, strength)
    maker.network.mark_output(make(maker), "y")
    return maker.network


class Ratios(NamedTuple):
    """Signal-to-noise ratios in dB by the way to place residuals, and how many of these have 8 bits."""

    none: float
    all: float
    guarded: float
    rounded: int
    residuals: int


def residuals(quantized: nx.Network) -> list[tuple[str, int, Any]]:
    """The sums that read a residual of 8 bits: each with the number of that input, and the tensor before it."""
    makers = {tensor: layer for layer in quantized.layers for tensor in layer.outputs}
    found = []
    for layer in quantized.layers:
        for at, tensor in enumerate(layer.inputs if layer.op == "Add" else []):
            if tensor in makers and makers[tensor].op == "DequantizeLinear":
                found.append((layer.name, at, makers[makers[tensor].inputs[0]].inputs[0]))
    return found


def everywhere(found: Calibrated) -> nx.Network:
    """With each residual in 8 bits, as where nobody knows how large its branch is."""
    branches = {name for _, name, _, role in found.full.quantization_points() if role == "branch"}
    ranges = {name: most for name, most in found.ranges.items() if name not in branches}
    return found._replace(ranges=ranges).quantized()


def compared(model: Any, calibration: Sequence[dict[str, Array]], fresh: Sequence[dict[str, Array]]) -> Ratios:
    """What a model loses in int8 by each way."""
    full, options = float_network(model, None, None)
    found = found_ranges(full, Calibrator(calibration), options)
    every, guarded = everywhere(found), found.quantized()
    whole = residuals(every)
    reference = Reference(full, list(fresh), [], options)

    def ratio(made: nx.Network) -> float:
        return min(reference.losses(_native.Engine.build(made, [], untimed(options))).values())

    ways = [ratio(made) for made in (every.rewired(whole), every, guarded)]
    return Ratios(*ways, len(residuals(guarded)), len(whole))


def batches(model: nx.Network, seed: int, count: int) -> list[dict[str, Array]]:
    """Of normal numbers; open sizes are 1."""
    random = np.random.default_rng(seed)

    def drawn(shape: Sequence[Any]) -> Array:
        return random.standard_normal([size if isinstance(size, int) else 1 for size in shape]).astype(np.float32)

    return [{tensor.name: drawn(tensor.shape) for tensor in model.inputs} for _ in range(count)]


def row(found: Sequence[Ratios]) -> dict[str, float]:
    """The figures of several networks; losses are those beside residuals in floats."""
    lost = {way: [getattr(one, way) - one.none for one in found] for way in ("all", "guarded")}
    figures: dict[str, float] = {"networks": len(found), "none": round(float(np.mean([one.none for one in found])), 2)}
    for way, differences in lost.items():
        figures[f"{way}, mean"] = round(float(np.mean(differences)), 2)
        figures[f"{way}, worst"] = round(min(differences), 2)
        figures[f"{way}, worse by 1 dB"] = sum(difference < -1 for difference in differences)
    figures["rounded"] = round(sum(one.rounded for one in found) / max(sum(one.residuals for one in found), 1), 3)
    return figures


def main() -> None:
    logging.getLogger("neurenix").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="ONNX files, in place of random networks")
    parser.add_argument("--networks", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for path in arguments.models:
        model = float_network(path, None, None)[0]
        print(path, compared(path, batches(model, 0, CALIBRATION), batches(model, 1, 2)))
    if arguments.models:
        return
    found: dict[str, list[Ratios]] = {kind: [] for kind in KINDS}
    for number in range(arguments.networks):
        kind = list(KINDS)[number % len(KINDS)]
        model = network(kind, f"{arguments.seed} {number}")
        one = compared(model, batches(model, number, CALIBRATION), batches(model, 10_000 + number, 2))
        found[kind].append(one)
        print(f"{kind} {number}: {', '.join(f'{name} {value:.4g}' for name, value in one._asdict().items())}")
    rows = {kind: row(of_kind) for kind, of_kind in found.items() if of_kind}
    rows["all of them"] = row([one for of_kind in found.values() for one in of_kind])
    for kind, figures in rows.items():
        print(kind, figures)
    measure.write("accuracy_residuals", rows, {"networks": arguments.networks, "seed": arguments.seed})


if __name__ == "__main__":
    main()
