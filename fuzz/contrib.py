"""Recipes of ONNX Runtime's own ops that layers of ours stand for."""

from __future__ import annotations

import numpy as np

from fuzz.generate import Network, Rejected, Value
from fuzz.moving import Recipe

DOMAIN = "com.microsoft"


def matmul_n_bits(g: Network) -> None:
    """Rows times weights of 2, 4 or 8 bits. Rows that may be rounded to 8 bits are those of no two engines: none."""
    rows = g.pick(("float32", "float16"), rank=(1, 2, 3), fits=lambda v: v.shape[-1] > 0)
    k, n = rows.shape[-1], g.rng.choice((1, 2, 5, 16, 33))
    bits, block = g.rng.choice((2, 4, 4, 8)), g.rng.choice((16, 32, 64, 128))
    blocks = -(-k // block)
    scales = g.give(g.numbers.integers(1, 5, n * blocks) / 16, dtype=rows.array.dtype)
    zeros = [packed(g, n * -(-blocks * bits // 8))] if g.flag() else []
    sizes = {"K": k, "N": n, "block_size": block, "bits": bits, "accuracy_level": g.flag()}
    weights = packed(g, n, blocks, block * bits // 8)
    g.add("MatMulNBits", rows, weights, scales, *zeros, domain=DOMAIN, **sizes)


def packed(g: Network, *shape: int) -> Value:
    """Bytes of any value, as a weight."""
    return g.give(g.numbers.integers(0, 256, shape), dtype=np.uint8)


def dynamic_quantize_lstm(g: Network) -> None:
    """One step from a state on the grid: a later state may stand between two of its 255 steps, and go to either."""
    x = g.pick(("float32",), rank=3, exact=True, least=1, fits=lambda v: v.shape[0] == 1)
    if not np.isfinite(x.array).all():
        raise Rejected
    directions, hidden = g.rng.choice((1, 1, 2)), g.rng.choice((1, 3, 8, 17))
    dtype = g.rng.choice((np.int8, np.uint8))
    low = np.iinfo(dtype).min

    def weights(inputs: int) -> Value:
        return g.give(g.numbers.integers(low, low + 256, (directions, inputs, 4 * hidden)), dtype=dtype)

    step = g.give(np.full(directions, 1 / 512), dtype=np.float32)
    zero = g.give(np.full(directions, low + 128), dtype=dtype)
    bias = g.new((directions, 8 * hidden), "float32", held=True) if g.flag() else None
    shape = (directions, x.shape[1], hidden)
    states = [g.give(g.numbers.integers(-4, 5, shape) / 4, dtype=np.float32) if g.flag() else None for _ in range(2)]
    direction = "bidirectional" if directions == 2 else g.rng.choice(("forward", "reverse"))
    inputs = [x, weights(x.shape[2]), weights(hidden), bias, None, *states, None, step, zero, step, zero]
    g.add("DynamicQuantizeLSTM", *inputs, outputs=3, domain=DOMAIN, hidden_size=hidden, direction=direction)


CONTRIB: dict[str, Recipe] = {"DynamicQuantizeLSTM": dynamic_quantize_lstm, "MatMulNBits": matmul_n_bits}
