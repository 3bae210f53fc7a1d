"""LSTM."""

from typing import Any

import numpy as np

from tests.conformance.case import F32, SINGLE, Array, Case, Given, case, constant, exact, uniform
from tests.optional import torch

OP = "LSTM"


def weights(*shape: int) -> Given:
    """Weights that keep a state in bounds."""
    return constant(uniform(-0.4, 0.4, *shape))


def by_torch(x: Array, w: Array, r: Array, b: Array | None = None, *rest: Any, **attrs: Any) -> tuple[Array, ...]:
    """torch's LSTM in double precision; its gates stand in another order (i, f, g, o)."""
    directions, hidden = r.shape[0], r.shape[2]
    module = torch.nn.LSTM(w.shape[2], hidden, bidirectional=directions == 2, bias=b is not None).double()
    order = np.concatenate([np.arange(hidden) + gate * hidden for gate in (0, 2, 3, 1)])
    with torch.no_grad():
        for d, tail in enumerate(["", "_reverse"][:directions]):
            getattr(module, f"weight_ih_l0{tail}").copy_(torch.from_numpy(w[d][order]))
            getattr(module, f"weight_hh_l0{tail}").copy_(torch.from_numpy(r[d][order]))
            if b is not None:
                getattr(module, f"bias_ih_l0{tail}").copy_(torch.from_numpy(b[d][: 4 * hidden][order]))
                getattr(module, f"bias_hh_l0{tail}").copy_(torch.from_numpy(b[d][4 * hidden :][order]))
        lengths, h, c = (*rest, None, None, None)[:3]
        first = attrs.get("layout") == 1
        if first:
            x, h, c = (None if a is None else a.swapaxes(0, 1) for a in (x, h, c))
        steps, batch = x.shape[:2]
        zeros = np.zeros((directions, batch, hidden))
        state = tuple(torch.from_numpy(np.ascontiguousarray(zeros if a is None else a)) for a in (h, c))
        given: Any = torch.from_numpy(np.ascontiguousarray(x))
        if lengths is not None:
            of = torch.from_numpy(lengths.astype(np.int64))
            given = torch.nn.utils.rnn.pack_padded_sequence(given, of, enforce_sorted=False)
        y, last = module(given, state)
        if lengths is not None:
            y = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=steps)[0]
    y = y.numpy().reshape(steps, batch, directions, hidden).swapaxes(1, 2)
    h, c = (s.numpy() for s in last)
    return (y.transpose(2, 0, 1, 3), h.swapaxes(0, 1), c.swapaxes(0, 1)) if first else (y, h, c)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def by_numpy(x: Array, w: Array, r: Array, b: Array | None = None, *rest: Any, **attrs: Any) -> tuple[Array, ...]:
    """The formulas of the specification, for one direction forward."""
    _, h, c, p = (*rest, None, None, None, None)[:4]
    hidden, clip = r.shape[2], attrs.get("clip", np.inf)
    h = np.zeros((x.shape[1], hidden)) if h is None else h[0]
    c = np.zeros((x.shape[1], hidden)) if c is None else c[0]
    bias = np.zeros(8 * hidden) if b is None else b[0]
    pi, po, pf = np.zeros((3, hidden)) if p is None else p[0].reshape(3, hidden)
    f, g, k = attrs.get("functions", (sigmoid, np.tanh, np.tanh))
    ys = []
    for xt in x:
        sums = xt @ w[0].T + h @ r[0].T + bias[: 4 * hidden] + bias[4 * hidden :]
        i, o, forget, new = np.split(sums, 4, 1)
        i = f(np.clip(i + pi * c, -clip, clip))
        forget = 1 - i if attrs.get("input_forget") else f(np.clip(forget + pf * c, -clip, clip))
        c = forget * c + i * g(np.clip(new, -clip, clip))
        o = f(np.clip(o + po * c, -clip, clip))
        h = o * k(np.clip(c, -clip, clip))
        ys.append(h)
    return np.stack(ys)[:, None], h[None], c[None]


def hard(x: Array) -> Array:
    return np.clip(0.3 * x + 0.6, 0, 1)


def softsign(x: Array) -> Array:
    return x / (1 + np.abs(x))


def other_functions(*inputs: Any, **attrs: Any) -> tuple[Array, ...]:
    """HardSigmoid, Softsign and a LeakyRelu of 0.2."""
    return by_numpy(*inputs, functions=(hard, softsign, lambda x: np.where(x < 0, 0.2 * x, x)))


def lstm(name: str, *inputs: Given | None, reference: Any = by_torch, **options: Any) -> Case:
    options = {"dtypes": SINGLE, "outputs": 3, "sums": True, "slack": 4.0, **options}
    return case(name, *inputs, reference=reference, **options)


X = uniform(-1, 1, 5, 3, 6)
W, R, B = weights(1, 36, 6), weights(1, 36, 9), weights(1, 72)
BOTH = (weights(2, 36, 6), weights(2, 36, 9), weights(2, 72))
LENGTHS = exact([5, 1, 3], np.int32)
STATES = (uniform(-1, 1, 2, 3, 9), uniform(-1, 1, 2, 3, 9))
CASES = [
    lstm("plain", X, W, R, hidden_size=9),
    lstm("bias", X, W, R, B, hidden_size=9),
    lstm("bidirectional", X, *BOTH, None, *STATES, direction="bidirectional", hidden_size=9),
    lstm("lengths", X, *BOTH, LENGTHS, *STATES, direction="bidirectional", hidden_size=9, dynamic=False),
    lstm(
        "batch_first",
        uniform(-1, 1, 3, 5, 6),
        *BOTH,
        LENGTHS,
        uniform(-1, 1, 3, 2, 9),
        uniform(-1, 1, 3, 2, 9),
        direction="bidirectional",
        layout=1,
        dynamic=False,
    ),
    lstm("weights_as_inputs", X, uniform(-0.4, 0.4, 1, 36, 6), uniform(-0.4, 0.4, 1, 36, 9), dynamic=False),
    lstm("doubles", X, W, R, B, dtypes=["float64"]),
    lstm("peepholes", X, W, R, B, None, None, None, weights(1, 27), reference=by_numpy),
    lstm("clip", X, W, R, B, reference=by_numpy, clip=0.25, dtypes=F32),
    lstm("input_forget", X, W, R, B, reference=by_numpy, input_forget=1, dtypes=F32),
    lstm(
        "functions",
        X,
        W,
        R,
        B,
        reference=other_functions,
        activations=["HardSigmoid", "Softsign", "LeakyRelu"],
        activation_alpha=[0.3, 0.2],
        activation_beta=[0.6],
        dtypes=F32,
    ),
    lstm("old", X, W, R, B, hidden_size=9, opset=7, dtypes=F32),
    lstm("one_step", uniform(-1, 1, 1, 2, 6), W, R, B, dtypes=F32),
]
