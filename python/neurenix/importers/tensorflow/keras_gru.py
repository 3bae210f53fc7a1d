"""The GRU layers of Keras 3, which tf2onnx would leave as loops: their two biases lie in one array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: What ONNX's GRU computes as activation.
ACTIVATIONS = ("Tanh", "Sigmoid", "Relu")
#: How a tf2onnx graph keeps what was found in it.
FOUND = "neurenix_gru"


@dataclass
class Cell:
    """Where the body of a loop has the parts of a GRU: numbers of its inputs."""

    x: int
    state: int
    sequence: int
    kernel: int
    recurrent: int
    bias: int | None
    activations: list[str]


class _NoMatch(Exception):
    """The body is no GRU."""


def rewrite(graph: Any, nodes: Any) -> Any:
    """While over the body of a Keras GRU => GRU. tf2onnx calls this for each graph, those of bodies first."""
    for node in nodes:
        if node.type == "TensorListSetItem":
            try:
                setattr(graph, FOUND, _Body(graph).cell(node))
            except _NoMatch:
                pass
    for node in nodes:
        if node.type in ("While", "StatelessWhile"):
            _replace(graph, node)
    return graph.get_nodes()


def _need(condition: bool) -> None:
    if not condition:
        raise _NoMatch


class _Body:
    """Reads a graph backwards; whatever differs from a GRU ends the reading."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def cell(self, written: Any) -> Cell:
        """The GRU whose output this node writes into a list."""
        first, second = self.of(written.input[2], "Add", "AddV2").input
        for kept, new in ((first, second), (second, first)):
            try:
                return self.mixed(written, kept, new)
            except _NoMatch:
                continue
        raise _NoMatch

    def mixed(self, written: Any, kept: str, new: str) -> Cell:
        """z * h + (1 - z) * candidate."""
        z, state = self.pair(kept, "Sigmoid", "Placeholder", "PlaceholderV2")
        rest, candidate = self.pair(new, "Sub", *ACTIVATIONS)
        _need(self.graph.get_node_by_output(rest.input[0]).is_const())
        _need(float(np.asarray(self.value(rest.input[0]))) == 1.0 and rest.input[1] == z.output[0])
        of_x, of_h = self.sum(candidate, "Split", "Mul")
        r, inner = self.pair(of_h.output[0], "Sigmoid", "StridedSlice")
        split = self.split(of_x, candidate.input[0], 2)
        product, slices = self.gates(split, ((z, 0), (r, 1)))
        units = self.units([*slices, inner])
        sources = {self.graph.get_node_by_output(node.input[0]).name for node in [*slices, inner]}
        _need(len(sources) == 1 and units > 0)
        kernel, item, bias = self.product(product, 0)
        recurrent, hidden, other = self.product(self.graph.get_node_by_output(inner.input[0]), 1)
        _need(bias == other and hidden == state.output[0])
        read = self.of(item, "TensorListGetItem")
        number = self.number
        return Cell(
            number(read.input[0]), number(state.output[0]), number(written.input[0]), number(kernel),
            number(recurrent), None if bias is None else number(bias), [z.type, candidate.type],
        )  # fmt: skip

    def gates(self, split: Any, gates: Any) -> tuple[Any, list[Any]]:
        """What the inputs' parts of all gates are split from, and the slices of their states' parts."""
        slices = []
        for gate, index in gates:
            of_x, of_h = self.sum(gate, "Split", "StridedSlice")
            _need(self.split(of_x, gate.input[0], index) is split)
            slices.append(of_h)
        return self.graph.get_node_by_output(split.input[1]), slices

    def product(self, node: Any, row: int) -> tuple[str, str, str | None]:
        """The weights and the other factor of a product, and the bias that is added, a row of an array of two."""
        bias = None
        if node.type in ("Add", "AddV2", "BiasAdd"):
            row_node = self.of(node.input[1], "Squeeze")
            rows = self.of(row_node.input[0], "Split")
            _need(rows.output.index(row_node.input[0]) == row and int(self.value(rows.input[0])) == 0)
            bias = self.root(rows.input[1])
            node = self.graph.get_node_by_output(node.input[0])
        _need(node.type == "MatMul" and not any(_flag(node, name) for name in ("transpose_a", "transpose_b")))
        return self.root(node.input[1]), node.input[0], bias

    def units(self, slices: list[Any]) -> int:
        """The number of units, if these are columns [:u], [u:2u] and [2u:] of as many rows as there are."""
        ends = [(self.value(node.input[1]).tolist(), self.value(node.input[2]).tolist()) for node in slices]
        units = int(ends[0][1][1])
        _need(ends[0] == ([0, 0], [0, units]) and ends[1] == ([0, units], [0, 2 * units]))
        _need(ends[2][0] == [0, 2 * units] and ends[2][1] in ([0, 0], [0, 3 * units]))
        masks = [tuple(_int(node, name) for name in ("begin_mask", "end_mask")) for node in slices]
        _need([end & 1 for _, end in masks] == [1, 1, 1] and (masks[2][1] & 2 > 0) == (ends[2][1][1] == 0))
        return units

    def split(self, node: Any, output: str, index: int) -> Any:
        """A Split, if this is its output of that number, of three along the last axis."""
        there = [name for name in node.output]
        used = [name for name in self.graph.get_node_by_output(output).input if name in there] or [output]
        _need(there.index(used[0]) == index and len(there) == 3 and int(self.value(node.input[0])) in (1, -1))
        return node

    def sum(self, node: Any, *types: str) -> tuple[Any, Any]:
        """What an activation's sum adds: nodes of these two types."""
        total = self.of(node.input[0], "Add", "AddV2")
        return self.pair(total.output[0], *types, of=("Add", "AddV2"))

    def pair(self, tensor: str, first: str, *second: str, of: tuple[str, ...] = ("Mul",)) -> tuple[Any, Any]:
        """The two inputs of a product (or sum): nodes of these types, in whatever order."""
        a, b = (self.graph.get_node_by_output(name) for name in self.of(tensor, *of).input)
        _need(a is not None and b is not None)
        if a.type == first and b.type in second:
            return a, b
        _need(b.type == first and a.type in second)
        return b, a

    def of(self, tensor: str, *types: str) -> Any:
        """The node that gives a tensor, of one of these types."""
        node = self.graph.get_node_by_output(tensor)
        _need(node is not None and node.type in types)
        return node

    def value(self, tensor: str) -> Any:
        """The elements of a constant."""
        node = self.graph.get_node_by_output(tensor)
        _need(node is not None and node.is_const())
        return node.get_tensor_value(as_list=False)

    def root(self, tensor: str) -> str:
        """The tensor behind Identity nodes."""
        node = self.graph.get_node_by_output(tensor)
        while node is not None and node.type == "Identity":
            tensor = node.input[0]
            node = self.graph.get_node_by_output(tensor)
        return tensor

    def number(self, tensor: str) -> int:
        """The number of an input of the body."""
        _need(self.root(tensor) in self.graph.input_names)
        return int(self.graph.input_names.index(self.root(tensor)))


def _replace(graph: Any, loop: Any) -> None:
    """Puts a GRU into the place of a loop, if its body is one and its weights are constants."""
    from tf2onnx.graph_builder import GraphBuilder
    from tf2onnx.tf_loader import find_function

    cell: Cell | None = getattr(find_function(loop.get_attr_str("body")), FOUND, None)
    if cell is None:
        return
    weights = [cell.kernel, cell.recurrent, *([] if cell.bias is None else [cell.bias])]
    items = loop.inputs[cell.x]
    written = [n for n in graph.find_output_consumers(loop.output[cell.sequence]) if n.type == "TensorListStack"]
    others = [n for n in graph.find_output_consumers(loop.output[cell.sequence]) if n.type != "TensorListStack"]
    if others or items.type != "TensorListFromTensor" or not all(loop.inputs[i].is_const() for i in weights):
        return
    kernel, recurrent, *bias = (loop.inputs[i].get_tensor_value(as_list=False) for i in weights)
    build, dtype = GraphBuilder(graph), graph.get_dtype(items.input[0])
    arrays = [kernel.T[None], recurrent.T[None], *(array.reshape(1, -1) for array in bias)]
    consts = [graph.make_const(f"{loop.name}/gru_{i}", np.ascontiguousarray(a)).output[0] for i, a in enumerate(arrays)]
    state = build.make_unsqueeze({"data": loop.input[cell.state], "axes": [0]})
    gru = graph.make_node(
        "GRU", [items.input[0], *consts, *([] if bias else [""]), "", state], output_count=2, name=f"{loop.name}/gru",
        attr={"hidden_size": recurrent.shape[0], "linear_before_reset": 1, "activations": cell.activations},
        dtypes=[dtype, dtype],
    )  # fmt: skip
    gru.skip_conversion = True
    every = build.make_squeeze({"data": gru.output[0], "axes": [1]})
    for node in written:
        graph.replace_all_inputs(node.output[0], every)
    graph.replace_all_inputs(loop.output[cell.state], build.make_squeeze({"data": gru.output[1], "axes": [0]}))


def _flag(node: Any, name: str) -> bool:
    return bool(_int(node, name))


def _int(node: Any, name: str) -> int:
    attribute = node.get_attr(name)
    return 0 if attribute is None else int(attribute.i)
