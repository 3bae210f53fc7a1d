"""Puts recurrent layers into the places of loops."""

from __future__ import annotations

from typing import Any

from neurenix.importers.tensorflow.recurrent import cells, functions, masks, steps
from neurenix.importers.tensorflow.recurrent.bodies import Body, body, recorded
from neurenix.importers.tensorflow.recurrent.nodes import Nodes
from neurenix.importers.tensorflow.recurrent.reading import NoMatch, need

#: How a graph of tf2onnx's keeps what was found in it.
BODY, BOUNDS = "neurenix_body", "neurenix_bounds"


def rewrite(graph: Any, nodes: Any) -> Any:
    """While over the body of a Keras layer => GRU, LSTM or RNN. tf2onnx calls this for each graph, bodies first."""
    recorded(graph, BODY, body)
    recorded(graph, BOUNDS, steps.bounds)
    for node in nodes:
        if node.type in ("While", "StatelessWhile"):
            try:
                _Loop(graph, node).replace()
            except NoMatch:
                # Stays a Loop, which computes the same.
                pass
    return graph.get_nodes()


class _Loop:
    """A loop whose body is a cell, and what it takes and gives."""

    def __init__(self, graph: Any, loop: Any) -> None:
        from tf2onnx.tf_loader import find_function

        found: Body | None = getattr(find_function(loop.get_attr_str("body")), BODY, None)
        bounds: steps.Bounds | None = getattr(find_function(loop.get_attr_str("cond")), BOUNDS, None)
        if found is None or bounds is None:
            raise NoMatch
        self.graph, self.loop, self.body, self.nodes = graph, loop, found, Nodes(graph, loop.name)
        need(all(counter in found.counters for counter, _ in bounds))
        self.items = self._list(found.items)
        steps.check_all(graph, loop, bounds, self.items, found.time)
        self.mask = None if found.mask is None else self._masks(found.mask.items)
        self._check_outputs()

    def _list(self, number: int) -> str:
        items = self.loop.inputs[number]
        need(items.type == "TensorListFromTensor")
        return str(items.input[0])

    def _masks(self, number: int) -> str:
        """The masks [steps, sequences, 1], if they fit the items without being spread over them."""
        mask = self._list(number)
        of_mask, of_items = self.graph.get_shape(mask), self.graph.get_shape(self.items)
        need(of_mask is not None and of_items is not None and len(of_mask) == 3 and of_mask[2] == 1)
        need(of_mask[1] == of_items[1] and steps.same_steps(self.graph, mask, self.items))
        return mask

    def _check_outputs(self) -> None:
        """Raises `NoMatch` where something reads more of the loop than a layer gives."""
        readers = {number: self.graph.find_output_consumers(name) for number, name in enumerate(self.loop.output)}
        used = {number for number, found in readers.items() if found or self.loop.output[number] in self.graph.outputs}
        need(bool(used) and used <= {self.body.written, *self.body.states})
        need(all(node.type == "TensorListStack" for node in readers[self.body.written]))
        need(self.loop.output[self.body.written] not in self.graph.outputs)
        self._check_list(self.loop.inputs[self.body.written])

    def _check_list(self, made: Any) -> None:
        """Raises `NoMatch` unless the list of outputs has an element for each step, or for the only one."""
        need(made.type == "TensorListReserve")
        if self.body.every:
            steps.check_count(self.graph, made.input[1], self.items)
        else:
            need(made.inputs[1].is_const() and int(made.inputs[1].get_tensor_value()) == 1)

    def replace(self) -> None:
        """Adds the layer, and lets what reads the loop read it."""
        arrays = cells.weights(self.body.cell, self._constants())
        self.width, self.units, self.dtype = arrays[0].shape[2], arrays[1].shape[2], arrays[0].dtype
        order = None if self.mask is None else masks.order(self.nodes, self.mask)
        items = self.items if order is None else masks.moved(self.nodes, self.items, order, self.width)
        every, *final = self._layer(items, arrays, "" if order is None else order.lengths)
        found = self._written(every, final[0], order)
        for node in self.graph.find_output_consumers(self.loop.output[self.body.written]):
            self.graph.replace_all_inputs(node.output[0], found)
        for number, tensor in zip(self.body.states, final, strict=True):
            self.graph.replace_all_inputs(self.loop.output[number], self.nodes.squeeze(tensor, 0))

    def _constants(self) -> dict[int, Any]:
        found = {}
        for number in self.body.weights:
            node = self.loop.inputs[number]
            need(node.is_const())
            found[number] = node.get_tensor_value(as_list=False)
        return found

    def _layer(self, items: str, arrays: list[Any], lengths: str) -> list[str]:
        """The outputs of the layer: every state h, and the final states."""
        cell, dtype = self.body.cell, self.graph.get_dtype(self.items)
        states = [self.nodes.unsqueeze(self.loop.input[number], 0) for number in self.body.states]
        attributes: dict[str, Any] = {"hidden_size": self.units, **functions.attributes(cell.functions)}
        if cell.linear_before_reset:
            attributes["linear_before_reset"] = 1
        count = 1 + len(states)
        made = self.graph.make_node(
            cell.op, [items, *map(self.nodes.const, arrays), lengths, *states], attr=attributes, output_count=count,
            name=f"{self.loop.name}/{cell.op.lower()}", dtypes=[dtype] * count,
        )  # fmt: skip
        return [str(name) for name in made.output]

    def _written(self, every: str, final: str, order: masks.Order | None) -> str:
        """What the list of outputs comes to, stacked: that of each step, or of the last step alone."""
        mask = self.body.mask
        if order is None or mask is None:
            return self.nodes.squeeze(every, 1) if self.body.every else final
        otherwise = self.loop.input[mask.otherwise]
        is_zero = masks.zero(self.graph, otherwise)
        if is_zero:
            otherwise = self.nodes.const(self.dtype.type(0))
        if self.body.every:
            return masks.spread(self.nodes, every, order, self.units, otherwise, mask.repeat)
        if is_zero and mask.repeat and masks.zero(self.graph, self.loop.input[self.body.states[0]]):
            return final
        return self.nodes.unsqueeze(
            masks.last(self.nodes, self.nodes.squeeze(final, 0), order, otherwise, mask.repeat), 0
        )
