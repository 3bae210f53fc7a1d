"""DynamicQuantizeLSTM."""

from typing import Any

import numpy as np

from tests.conformance.case import F32, Array, Case, Given, case, constant, exact, normal, uniform
from tests.conformance.cases import lstm


def rounded(x: Array) -> Array:
    """Numbers as DynamicQuantizeLinear and DequantizeLinear leave them."""
    low, high = (np.float32(min(x.min(initial=0), 0)), np.float32(max(x.max(initial=0), 0)))
    step = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / step, 0, 255))
    codes = np.clip(np.rint(x.astype(np.float32) / step) + zero, 0, 255)
    return np.asarray((codes - zero).astype(np.float64) * np.float64(step))


def numbers(stored: Array, scale: Array, zero: Array) -> Array:
    """Weights as an LSTM has them."""
    shape = (len(stored), 1, -1)
    wide = (stored.astype(np.float64) - zero.reshape(shape)) * scale.astype(np.float64).reshape(shape)
    return np.asarray(wide.swapaxes(1, 2))


def by_numpy(x: Array, w: Array, r: Array, *rest: Any, **attrs: Any) -> tuple[Array, ...]:
    """The formulas of an LSTM, each state rounded where it meets its weights."""
    w_scale, w_zero, r_scale, r_zero, b, lengths, h, c, p = (*rest, *[None] * 9)[:9]
    weights, states = numbers(w, w_scale, w_zero), numbers(r, r_scale, r_zero)
    hidden, (steps, batch) = states.shape[2], x.shape[:2]
    x, ys, ends = rounded(x), np.zeros((steps, len(w), batch, hidden)), np.zeros((2, len(w), batch, hidden))
    lengths = np.full(batch, steps) if lengths is None else lengths
    for d in range(len(w)):
        bias = np.zeros(4 * hidden) if b is None else b[d].reshape(2, -1).sum(0)
        pi, po, pf = np.zeros((3, hidden)) if p is None else p[d].reshape(3, hidden)
        for n in range(batch):
            state = np.zeros(hidden) if h is None else h[d, n]
            cell = np.zeros(hidden) if c is None else c[d, n]
            order = range(lengths[n])
            for t in order if d == 0 and attrs.get("direction") != "reverse" else reversed(order):
                i, o, f, g = np.split(weights[d] @ x[t, n] + states[d] @ rounded(state) + bias, 4)
                i, f = lstm.sigmoid(i + pi * cell), lstm.sigmoid(f + pf * cell)
                cell = f * cell + i * np.tanh(g)
                state = lstm.sigmoid(o + po * cell) * np.tanh(cell)
                ys[t, d, n] = state
            ends[:, d, n] = state, cell
    return ys, *ends


def of(dtype: str, *shape: int) -> Given:
    """Integers of 8 bits."""
    low, high = (-128, 128) if dtype == "int8" else (0, 256)
    return constant(Given(lambda rng, _: rng.integers(low, high, shape).astype(dtype)))


def cases(name: str, stored: str, d: int, columns: bool, *rest: Given | None, **attrs: Any) -> Case:
    """An LSTM of 7 inputs and 20 states, over 4 steps of 3 sequences."""
    gates = 80
    count = (d, gates) if columns else (d,)
    step = constant(uniform(0.001, 0.003, *count))
    zero = constant(exact(np.full(count, 0 if stored == "int8" else 128), stored))
    given = [normal(4, 3, 7), of(stored, d, 7, gates), of(stored, d, 20, gates), step, zero, step, zero]
    options: dict[str, Any] = {"dtypes": F32, "opset": 0, "outputs": 3, "sums": True, "dynamic": False}
    # A state between two of its 255 steps may go to either; layers of float that stand for the op round none.
    # So much is a fiftieth of the greatest result.
    return case(name, *given, *rest, reference=by_numpy, slack=2.0**14, **options, **attrs)


OP = "DynamicQuantizeLSTM"
LENGTHS = constant(exact(np.asarray([4, 1, 3]), np.int32))
CASES = [
    cases("plain", "int8", 1, columns=False),
    cases("columns", "int8", 1, columns=True),
    cases("unsigned", "uint8", 1, columns=False),
    cases("reverse", "uint8", 1, columns=True, direction="reverse"),
    cases("both_ways", "int8", 2, True, constant(normal(2, 160)), direction="bidirectional"),
    cases(
        "everything",
        "uint8",
        2,
        True,
        constant(normal(2, 160)),
        LENGTHS,
        normal(2, 3, 20),
        normal(2, 3, 20),
        constant(uniform(-0.5, 0.5, 2, 60)),
        direction="bidirectional",
    ),
]
