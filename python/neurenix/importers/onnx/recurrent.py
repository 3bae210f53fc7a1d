"""LSTM, GRU, RNN and what stands beside them."""

from __future__ import annotations

from collections.abc import Sequence

from neurenix._native import Tensor
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.same import same


def recurrent(node: Node) -> Sequence[Tensor]:
    """LSTM, GRU, RNN: the names of functions become one text."""
    attrs = dict(node.attrs)
    if "activations" in attrs:
        attrs["activations"] = ",".join(attrs["activations"])
    return node.add_all(node.op, node.all(), **attrs)[: len(node.outputs)]


RULES: dict[str, Rule] = {
    **same("ReverseSequence"),
    "GRU": recurrent,
    "LSTM": recurrent,
    "RNN": recurrent,
}
