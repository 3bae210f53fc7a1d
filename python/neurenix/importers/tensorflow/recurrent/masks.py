"""Steps that a mask hides, without a loop and for any mask.

The steps that are left of each sequence come to the front, the layer runs over as many as there are, and each step of
the output takes the one of the last step before it that was left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neurenix.importers.tensorflow.recurrent.nodes import Nodes


@dataclass
class Order:
    """What a mask of steps and sequences comes to, each of the shape of the mask but `lengths`."""

    #: The mask, and how many steps up to this one are left.
    mask: str
    seen: str
    #: How many steps of each sequence are left.
    lengths: str
    #: The number of each element, and those numbers with the steps that are left in front.
    numbers: str
    rows: str


def order(nodes: Nodes, mask: str) -> Order:
    """The order of a mask [steps, sequences, 1]."""
    from onnx import TensorProto

    flat = nodes.squeeze(mask, 2)
    left = nodes.cast(flat, TensorProto.INT64)
    hidden = nodes.cast(nodes.make("Not", flat), TensorProto.INT64)
    axis, one = nodes.const(0), nodes.const(1)
    seen, skipped = (nodes.make("CumSum", ones, axis) for ones in (left, hidden))
    lengths = nodes.make("ReduceSum", left, nodes.const([0]), keepdims=0)
    # Steps that are hidden follow, so that each element has a place of its own.
    behind = nodes.make("Add", skipped, lengths)
    places = nodes.make("Sub", nodes.make("Where", flat, seen, behind), one)
    count = nodes.make("Size", flat)
    numbers = nodes.make("Range", nodes.const(0), count, one)
    numbers = nodes.make("Reshape", numbers, nodes.make("Shape", flat))
    rows = nodes.make("ScatterElements", numbers, places, numbers, axis=0)
    return Order(flat, seen, nodes.cast(lengths, TensorProto.INT32), numbers, rows)


def moved(nodes: Nodes, items: str, order: Order, width: int) -> str:
    """Items [steps, sequences, width], those that are left in front."""
    flat = nodes.make("Reshape", items, nodes.const([-1, width]))
    return nodes.make("Gather", flat, order.rows, axis=0)


def spread(nodes: Nodes, every: str, order: Order, width: int, otherwise: str, repeat: bool) -> str:
    """The output of each step from those in the order of `moved`, [steps, sequences, width].

    A hidden step repeats the output before it, or has `otherwise`, as does one that nothing is before.
    """
    last = nodes.make("Max", nodes.make("Sub", order.seen, nodes.const(1)), nodes.const(0))
    rows = nodes.make("GatherElements", order.numbers, last, axis=0)
    flat = nodes.make("Reshape", every, nodes.const([-1, width]))
    found = nodes.make("Gather", flat, rows, axis=0)
    there = nodes.make("Greater", order.seen, nodes.const(0)) if repeat else order.mask
    return nodes.make("Where", nodes.unsqueeze(there, 2), found, otherwise)


def last(nodes: Nodes, final: str, order: Order, otherwise: str, repeat: bool) -> str:
    """The output [sequences, width] of the last step, which is the final state or `otherwise`."""
    if repeat:
        there = nodes.make("Greater", order.lengths, nodes.const(np.int32(0)))
    else:
        there = nodes.make("Gather", order.mask, nodes.const(-1), axis=0)
    return nodes.make("Where", nodes.unsqueeze(there, 1), final, otherwise)


def zero(graph: Any, tensor: str) -> bool:
    """Whether a tensor is known to be zero everywhere."""
    node = graph.get_node_by_output(tensor)
    while node is not None and node.type == "Identity":
        node = node.inputs[0]
    if node is None:
        return False
    if node.type == "Fill":
        node = node.inputs[1]
    return node.type == "ZerosLike" or bool(node.is_const() and not np.any(node.get_tensor_value(as_list=False)))
