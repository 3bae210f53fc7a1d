"""Nodes of ONNX in a graph of tf2onnx's."""

from __future__ import annotations

from typing import Any

import numpy as np


class Nodes:
    """Makes nodes whose names begin with that of the loop that they replace."""

    def __init__(self, graph: Any, scope: str) -> None:
        self.graph, self.scope = graph, scope

    def make(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The only output of a new node."""
        return str(self.graph.make_node(op, list(inputs), attr=attributes, op_name_scope=self.scope).output[0])

    def const(self, value: Any) -> str:
        """A constant; Python's integers are of 64 bits."""
        from tf2onnx import utils

        array = np.ascontiguousarray(value).reshape(np.shape(value))
        return str(self.graph.make_const(utils.make_name(f"{self.scope}/const"), array).output[0])

    def cast(self, tensor: str, to: int) -> str:
        """A tensor in another dtype."""
        return self.make("Cast", tensor, to=to)

    def squeeze(self, tensor: str, axis: int) -> str:
        """A tensor without an axis."""
        return self.make("Squeeze", tensor, self.const([axis]))

    def unsqueeze(self, tensor: str, axis: int) -> str:
        """A tensor with another axis."""
        return self.make("Unsqueeze", tensor, self.const([axis]))
