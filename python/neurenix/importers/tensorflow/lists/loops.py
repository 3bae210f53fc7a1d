"""Lists that loops are given: which stay tf2onnx's, which get their indices too, and which become loop variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neurenix.importers.tensorflow.lists import proofs
from neurenix.importers.tensorflow.lists.bodies import VARIANT, Body, Written, users
from neurenix.importers.tensorflow.lists.indices import Indices, reserved
from neurenix.importers.tensorflow.lists.lists import Lists
from neurenix.importers.tensorflow.lists.refusals import refusal
from neurenix.importers.tensorflow.lists.stacked import Stacked
from neurenix.importers.tensorflow.lists.values import Blank, Dense, List, Tensors, known
from neurenix.importers.tensorflow.recurrent.reading import Reader
from neurenix.importers.tensorflow.recurrent.rewriter import BOUNDS

#: How a graph keeps what it is as the body of a loop.
BODY = "neurenix_lists"
IN_ORDER = "write all elements in order from the first one, in a loop with a counter from 0 to their number"


def convert(lists: Lists, node: Any) -> None:
    """While over lists => While over tensors, and over lists that each step writes one element of.

    Raises `UnsupportedError` for lists that can't be either.
    """
    from tf2onnx.tf_loader import find_function

    found = getattr(find_function(node.get_attr_str("body")), BODY, None)
    if found is not None and found.lists:
        _Loop(lists, node, found).convert()


class _Loop:
    """A loop and its lists."""

    def __init__(self, lists: Lists, node: Any, body: Body) -> None:
        from tf2onnx.tf_loader import find_function

        self.lists, self.graph, self.node, self.body = lists, lists.graph, node, body
        self.inner, self.cond = (find_function(node.get_attr_str(name)) for name in ("body", "cond"))
        self.make = Tensors(self.graph, node.name)
        self.inputs: list[str] = list(node.input)
        self.stacked: list[Stacked] = []
        self.indices = Indices(node, self.inner, self.cond)

    def convert(self) -> None:
        """Gives the loop other inputs, and lets what reads its lists read tensors."""
        for place in sorted(self.body.lists):
            value = self.lists.get(self.inputs[place])
            if place in self.body.written:
                self._written(place, value)
            elif value is not None:
                (self._kept if place in self.body.kept else self._carried)(place, value)
        readers = {one.items: self.graph.find_output_consumers(one.items) for one in self.stacked}
        self._replace_node()
        for one in self.stacked:
            self.lists.put(one.items, Dense(one.result(self.make, self.indices.outputs), one.dtype), readers[one.items])

    def _replace_node(self) -> None:
        """Gives the loop its new inputs and outputs, those that are written in front of those that are read.

        tf2onnx takes the numbers of the former for what they are when the latter are gone.
        """
        from onnx import TensorProto

        node, graph, more = self.node, self.graph, list(self.indices.outputs.values())
        inputs = [*self.inputs, *(reserved(graph, node.name, [], TensorProto.INT32) for _ in more)]
        outputs, dtypes, shapes = [*node.output, *more], node.output_dtypes, node.output_shapes
        first = {*self.body.written, *range(len(node.output), len(outputs))}
        order = sorted(range(len(outputs)), key=lambda place: (place > 1, place not in first, place))
        if not more and not self._read_in_front():
            graph.replace_inputs(node, inputs)
            return
        dtypes, shapes = [*dtypes, *([VARIANT] * len(more))], [*shapes, *([[]] * len(more))]
        graph.remove_node(node.name)
        self.node = graph.make_node(
            node.type, _ordered(inputs, order), attr=node.attr, name=node.name, outputs=_ordered(outputs, order),
            shapes=_ordered(shapes, order), dtypes=_ordered(dtypes, order), skip_conversion=False,
        )  # fmt: skip
        self.inner.outputs = _ordered(self.inner.outputs, order)
        for one in (self.inner, self.cond):
            one.inputs = _ordered(one.inputs, order)

    def _read_in_front(self) -> bool:
        """Whether a list that is only read comes before one that is written."""
        return min(self.body.lists & self.body.kept, default=len(self.inputs)) < max(self.body.written, default=0)

    def _kept(self, place: int, value: List) -> None:
        """A list that is only read, or not at all."""
        name, output = self.inner.input_names[place], self.node.output[place]
        used = users(self.inner, name) or self._asked(place)
        if isinstance(value, Blank) and not used:
            self.inputs[place] = self.make.const([0])
            self.lists.put(output, value)
            return
        tensor = self.make.dense(value, None)
        self._type(place, value.dtype, self.graph.get_shape(tensor))
        self.inputs[place] = tensor
        self.lists.put(output, Dense(tensor, value.dtype))

    def _carried(self, place: int, value: List) -> None:
        """A list that is written in some other way: each step gets all of it."""
        shape, output = self.inner.get_shape(self.inner.outputs[place]), self.node.output[place]
        element = known(shape[1:]) if shape else None
        self.inputs[place] = self.make.dense(value, element)
        dtype = value.dtype or self.inner.get_dtype(self.inner.outputs[place])
        self._type(place, dtype, None if element is None else [-1, *element])
        self.lists.put(output, Dense(output, dtype))

    def _type(self, place: int, dtype: int, shape: list[int] | None) -> None:
        """Tells the graphs what a list is as a tensor."""
        tensors = [(graph, graph.input_names[place]) for graph in (self.inner, self.cond)]
        for graph, tensor in [*tensors, (self.graph, self.node.output[place])]:
            graph.set_shape(tensor, shape)
            if dtype != VARIANT:
                graph.set_dtype(tensor, dtype)

    def _asked(self, place: int) -> bool:
        """Whether the condition reads a list."""
        return bool(users(self.cond, self.cond.input_names[place]))

    def _written(self, place: int, value: List | None) -> None:
        """A list that each step writes one element of.

        Raises `UnsupportedError` where the condition reads it, or it is ragged and not written in order.
        """
        if value is None or self._asked(place):
            reason = "the condition of a loop reads it" if value else "a loop writes it, and it is not known what it is"
            raise refusal(reason, self.node.name, "let the loop give its elements in another way")
        write, output = self.body.written[place], self.node.output[place]
        if write.ragged:
            if self._proven(write, value) != (True, True):
                raise refusal("a loop does not write rows in order, or that isn't proven", self.node.name, IN_ORDER)
            return
        item = Reader(self.inner).node(self.inner.outputs[place])
        dtype, shape = self.inner.get_dtype(item.input[2]), self.inner.get_shape(item.input[2])
        if isinstance(value, Blank) and (shape is None or value.shape is not None):
            shape = value.outline
        shape = self._shape_behind(output) if shape is None else shape
        self.inputs[place] = reserved(self.graph, self.node.name, shape, dtype)
        self.graph.set_shape(output, None if shape is None else [-1, *shape])
        self.graph.set_dtype(output, dtype)
        if not users(self.graph, output) and not self.lists.given(output):
            return
        ordered, everything = self._proven(write, value)
        self.stacked.append(Stacked(output, item.input[1], write.resize, value, dtype, ordered, everything))
        if not ordered:
            self.indices.add(item.input[1])

    def _shape_behind(self, output: str) -> list[int] | None:
        """The shape of an element where a list is stacked."""
        stacks = [node for node in users(self.graph, output) if node.type == "TensorListStack"]
        shapes = [self.graph.get_shape(node.output[0]) for node in stacks]
        return next((shape[1:] for shape in shapes if shape), None)

    def _proven(self, write: Written, value: List) -> tuple[bool, bool]:
        """Whether the elements come in order behind each other, and all of them do."""
        if not isinstance(value, Blank) or not proofs.in_order(self.graph, self.node, self.body, write):
            return False, False
        bounds = getattr(self.cond, BOUNDS, None)
        return True, proofs.all_written(self.graph, self.node, self.body, bounds, value.count)


def _ordered(given: Sequence[Any], order: Sequence[int]) -> list[Any]:
    return [given[place] for place in order]
