"""GRU."""

from typing import Any

import numpy as np

from tests.conformance.case import F32, SINGLE, Array, Case, Given, case, constant, exact, uniform

OP = "GRU"


def weights(*shape: int) -> Given:
    """Weights that keep a state in bounds."""
    return constant(uniform(-0.4, 0.4, *shape))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def by_numpy(x: Array, w: Array, r: Array, b: Array | None = None, *rest: Any, **attrs: Any) -> tuple[Array, ...]:
    """The formulas of the specification, one sequence at a time."""
    lengths, initial = (*rest, None, None)[:2]
    first = attrs.get("layout") == 1
    x = x.swapaxes(0, 1) if first else x
    (steps, batch), (directions, _, hidden) = x.shape[:2], r.shape
    initial = np.zeros((directions, batch, hidden)) if initial is None else initial
    initial = initial.swapaxes(0, 1) if first and rest[1:] else initial
    clip = attrs.get("clip", np.inf)
    y, last = np.zeros((steps, directions, batch, hidden)), np.array(initial)
    for d in range(directions):
        backwards = d == 1 or attrs.get("direction") == "reverse"
        bias = np.zeros(6 * hidden) if b is None else b[d]
        wb, rb = bias[: 3 * hidden], bias[3 * hidden :]
        for n in range(batch):
            length = steps if lengths is None else int(lengths[n])
            order = range(length)
            h = last[d, n]
            for t in reversed(order) if backwards else order:
                xz, xr, xh = np.split(w[d] @ x[t, n] + wb, 3)
                hz, hr, hh = np.split(r[d] @ h + rb, 3)
                z, reset = (sigmoid(np.clip(s, -clip, clip)) for s in (xz + hz, xr + hr))
                if not attrs.get("linear_before_reset"):
                    hh = r[d][2 * hidden :] @ (reset * h) + rb[2 * hidden :]
                    reset = 1.0
                h = (1 - z) * np.tanh(np.clip(xh + reset * hh, -clip, clip)) + z * h
                y[t, d, n] = h
            last[d, n] = h
    return (y.transpose(2, 0, 1, 3), last.swapaxes(0, 1)) if first else (y, last)


def gru(name: str, *inputs: Given | None, **options: Any) -> Case:
    options = {"dtypes": SINGLE, "outputs": 2, "sums": True, "slack": 4.0, "reference": by_numpy, **options}
    return case(name, *inputs, **options)


X = uniform(-1, 1, 5, 3, 6)
W, R, B = weights(1, 27, 6), weights(1, 27, 9), weights(1, 54)
BOTH = (weights(2, 27, 6), weights(2, 27, 9), weights(2, 54))
LENGTHS = exact([5, 0, 3], np.int32)
CASES = [
    gru("plain", X, W, R, hidden_size=9),
    gru("bias", X, W, R, B, hidden_size=9),
    gru("linear_before_reset", X, W, R, B, linear_before_reset=1),
    gru("reverse", X, W, R, B, direction="reverse", dtypes=F32),
    gru("bidirectional", X, *BOTH, None, uniform(-1, 1, 2, 3, 9), direction="bidirectional"),
    gru(
        "lengths",
        X,
        *BOTH,
        LENGTHS,
        uniform(-1, 1, 2, 3, 9),
        direction="bidirectional",
        linear_before_reset=1,
        dynamic=False,
    ),
    gru("batch_first", uniform(-1, 1, 3, 5, 6), W, R, B, None, uniform(-1, 1, 3, 1, 9), layout=1, dynamic=False),
    gru("weights_as_inputs", X, uniform(-0.4, 0.4, 1, 27, 6), uniform(-0.4, 0.4, 1, 27, 9), B, dynamic=False),
    gru("doubles", X, W, R, B, dtypes=["float64"]),
    gru("clip", X, W, R, B, clip=0.25, dtypes=F32),
    gru("old", X, W, R, B, opset=7, dtypes=F32),
]
