"""Recurrent layers: PyTorch's weights, in the order that the ops want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from neurenix.nn.functional.arranging import cat, stack
from neurenix.nn.functional.common import traced
from neurenix.nn.functional.products import linear
from neurenix.nn.traced import Traced


class Kind(NamedTuple):
    """The op of a layer, and where the gates of its weights stand in PyTorch's."""

    op: str
    gates: tuple[int, ...]
    attrs: dict[str, Any]


RNN_TANH = Kind("RNN", (0,), {"activations": "Tanh"})
RNN_RELU = Kind("RNN", (0,), {"activations": "Relu"})
#: PyTorch has input, forget, cell, output; the op input, output, forget, cell.
LSTM = Kind("LSTM", (0, 3, 1, 2), {})
#: PyTorch has reset, update, new; the op update, reset, new.
GRU = Kind("GRU", (1, 0, 2), {"linear_before_reset": 1})

#: Of one direction of one layer: weight_ih, weight_hh, bias_ih, bias_hh; no biases where there are none.
Weights = Sequence[Any]


def layer(kind: Kind, x: Traced, weights: Sequence[Weights], states: Sequence[Traced]) -> tuple[Traced, list[Traced]]:
    """One layer in one or two directions: x [steps, batch, features] to [steps, batch, directions * hidden].

    `states` are the first h, and c of an LSTM, [directions, batch, hidden] each, or none for zeros. Gives the last
    ones.
    """
    both = [[_ordered(weight, kind.gates) for weight in traced(*one)] for one in weights]
    w, r = (stack([one[i] for one in both]) for i in (0, 1))
    bias = stack([cat(one[2:]) for one in both]) if len(both[0]) > 2 else None
    attrs = dict(kind.attrs)
    if len(both) == 2:
        attrs["direction"] = "bidirectional"
        if "activations" in attrs:
            attrs["activations"] += "," + attrs["activations"]
    outputs, *last = x.trace.add_all(kind.op, [x, w, r, bias, None, *states], **attrs)
    return outputs.transpose(1, 2).flatten(2), last


def _ordered(weight: Traced, gates: tuple[int, ...]) -> Traced:
    if len(gates) == 1:
        return weight
    parts = weight.chunk(len(gates), 0)
    return cat([parts[gate] for gate in gates])


def _gates(x: Traced, h: Traced, weights: Weights) -> tuple[Traced, Traced]:
    """What input and state bring to the gates."""
    w, r, *biases = weights
    first, second = biases or (None, None)
    return linear(x, w, first), linear(h, r, second)


def rnn_cell(x: Traced, h: Traced, weights: Weights, nonlinearity: str) -> Traced:
    """One step of an RNN."""
    total = sum(_gates(x, h, weights), start=0.0)
    assert isinstance(total, Traced)
    return total.tanh() if nonlinearity == "tanh" else total.relu()


def lstm_cell(x: Traced, h: Traced, c: Traced, weights: Weights) -> tuple[Traced, Traced]:
    """One step of an LSTM: the next h and c."""
    from_x, from_h = _gates(x, h, weights)
    taken, kept, new, given = (from_x + from_h).chunk(4, -1)
    c = kept.sigmoid() * c + taken.sigmoid() * new.tanh()
    return given.sigmoid() * c.tanh(), c


def gru_cell(x: Traced, h: Traced, weights: Weights) -> Traced:
    """One step of a GRU."""
    from_x, from_h = (part.chunk(3, -1) for part in _gates(x, h, weights))
    reset, update = ((a + b).sigmoid() for a, b in zip(from_x[:2], from_h[:2], strict=True))
    new = (from_x[2] + reset * from_h[2]).tanh()
    return new + update * (h - new)
