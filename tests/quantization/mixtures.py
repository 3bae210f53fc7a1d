"""Networks of the kinds that the tools of accuracy look at, batches for them, and how much each tool changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import neurenix as nx

Mixture = tuple[nx.Network, list[Any], dict[str, int]]


class Maker:
    """A network on its way."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.random = np.random.default_rng(sum(shape))
        self.network = nx.Network("mixture")
        self.shape = shape
        self.x = self.network.add_input("x", np.float32, shape)

    def constant(self, *shape: int, gain: float = 1.0) -> Any:
        fan = max(int(np.prod(shape[1:])), 1)
        values = self.random.normal(size=shape) * gain / np.sqrt(fan)
        # Channels whose ranges are far apart.
        values *= np.exp(self.random.normal(size=(shape[0], *[1] * (len(shape) - 1))))
        return self.network.add_constant("", values.astype(np.float32))

    def add(self, op: str, *inputs: Any, **attrs: Any) -> Any:
        return self.network.add_layer(op, list(inputs), attrs)[0]

    def done(self, y: Any, **changed: int) -> Mixture:
        self.network.mark_output(y, "y")
        return self.network, [self.random.normal(size=self.shape).astype(np.float32) for _ in range(4)], changed


def convolutions() -> Mixture:
    """Groups, depthwise, strides, dilations, pooling, a head behind a mean."""
    m = Maker((2, 4, 12, 12))
    y = m.add("Relu", m.add("Conv", m.x, m.constant(16, 4, 3, 3), m.constant(16), pads=[1] * 4))
    y = m.add("LeakyRelu", m.add("Conv", y, m.constant(16, 1, 3, 3), group=16, auto_pad="SAME_UPPER", strides=[2, 2]))
    y = m.add("MaxPool", m.add("Conv", y, m.constant(8, 4, 3, 3), group=4, pads=[2] * 4, dilations=[2, 2]),
              kernel_shape=[2, 2], strides=[2, 2])  # fmt: skip
    y = m.add("Relu", m.add("Conv", y, m.constant(12, 8, 1, 1), m.constant(12)))
    y = m.add("ReduceMean", y, axes=[2, 3], keepdims=0)
    y = m.add("Add", m.add("MatMul", y, m.constant(12, 10)), m.constant(10))
    return m.done(y, equalisation=4, smooth=1)


def transposed() -> Mixture:
    """A transposed convolution between two others, of which the last one has no bias; a Clip ends a pair."""
    m = Maker((2, 3, 8, 8))
    y = m.add("Relu", m.add("Conv", m.x, m.constant(8, 3, 3, 3), m.constant(8)))
    y = m.add("Relu", m.add("ConvTranspose", y, m.constant(8, 6, 2, 2), m.constant(6), strides=[2, 2]))
    y = m.add("Conv", y, m.constant(4, 6, 3, 3), pads=[1] * 4)
    low, high = (m.network.add_constant("", np.float32(limit)) for limit in (0, 6))
    y = m.add("Conv", m.add("Clip", y, low, high), m.constant(4, 4, 1, 1), m.constant(4))
    return m.done(y, equalisation=2, smooth=0)


def gated() -> Mixture:
    """Norms that products read alone, beside others and through a Transpose; a gate, and a Mul by a constant."""
    m = Maker((2, 6, 16))
    y = m.add("LayerNormalization", m.x, m.constant(16, gain=4), m.constant(16), axis=-1)
    moved = m.add("Transpose", y, perm=[1, 0, 2])
    y = m.add("Add", m.x, m.add("Transpose", m.add("MatMul", moved, m.constant(16, 16)), perm=[1, 0, 2]))
    y = m.add("RMSNormalization", y, m.constant(16, gain=4), axis=-1)
    left = m.add("Silu", m.add("MatMul", y, m.constant(16, 32)))
    right = m.add("Add", m.add("MatMul", y, m.constant(16, 32)), m.constant(32))
    inner = m.add("MatMul", m.add("Mul", left, right), m.constant(16, 32), transB=1)
    # The norm behind it is read by an Add, too.
    y = m.add("LayerNormalization", m.add("Add", m.x, inner), m.constant(16, gain=4), axis=-1)
    beside = m.add("Add", m.add("MatMul", y, m.constant(16, 16)), m.add("MatMul", y, m.constant(16, 16)))
    y = m.add("Add", y, beside)
    y = m.add("MatMul", m.add("Mul", y, m.constant(16)), m.constant(16, 8))
    return m.done(y, equalisation=0, smooth=5)


NETWORKS: dict[str, Callable[[], Mixture]] = {
    "convolutions": convolutions,
    "transposed": transposed,
    "gated": gated,
}
