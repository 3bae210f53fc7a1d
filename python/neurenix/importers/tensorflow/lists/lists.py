"""The lists of one graph of tf2onnx's, by the tensors that TensorFlow has them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neurenix.importers.tensorflow.lists.bodies import VARIANT, Body
from neurenix.importers.tensorflow.lists.values import Blank, Dense, List, Tensors
from neurenix.importers.tensorflow.recurrent.reading import Reader


class Lists:
    """What is known of the lists of a graph. `body`: how it uses them, where it is the body of a loop."""

    def __init__(self, graph: Any, body: Body | None) -> None:
        self.graph, self.body = graph, body
        self._reader = Reader(graph)
        self._found: dict[str, List] = {}
        for place, name in enumerate(graph.input_names):
            if graph.get_dtype(name) == VARIANT and not (body and place in body.written):
                self._found[name] = Dense(name, VARIANT)

    def get(self, tensor: str) -> List | None:
        """The list that a tensor is, or None."""
        return self._found.get(self._reader.root(tensor))

    def read(self, node: Any) -> List | None:
        """The list that an op of lists takes as its first input, or None."""
        value = self.get(node.input[0])
        if isinstance(value, Dense) and value.dtype == VARIANT:
            value.dtype = int(node.get_attr("element_dtype").i)
            self.graph.set_dtype(value.tensor, value.dtype)
            self.graph.set_shape(value.tensor, None)
        return value

    def put(self, tensor: str, value: List, readers: Sequence[Any] | None = None) -> None:
        """Keeps what a tensor is, and lets what reads it, or these nodes, read the tensor of the elements."""
        self._found[tensor] = value
        if isinstance(value, Dense) and value.tensor != tensor:
            self._found[value.tensor] = value
            readers = self.graph.find_output_consumers(tensor) if readers is None else readers
            self.graph.replace_all_inputs(tensor, value.tensor, ops=list(readers))

    def own(self, tensor: str) -> bool:
        """Whether it is a list that a loop's body is given and gives on as it is: tf2onnx knows how to read these."""
        place = self._place(tensor)
        return self.body is not None and place in self.body.kept

    def given(self, tensor: str) -> bool:
        """Whether the graph gives a tensor."""
        return tensor in [self._reader.root(name) for name in self.graph.outputs]

    def _place(self, tensor: str) -> int | None:
        name, names = self._reader.root(tensor), self.graph.input_names
        return names.index(name) if name in names else None

    def finish(self) -> None:
        """Gives Identity nodes and outputs that are lists the dtypes and shapes of tensors.

        Raises `UnsupportedError` for outputs nothing is written to whose elements have no known shape.
        """
        for number, name in enumerate(self.graph.outputs):
            value = self.get(name)
            if isinstance(value, Blank):
                tensor = Tensors(self.graph, self.graph.graph_name).dense(value, None)
                self._found[name] = Dense(tensor, value.dtype)
                self.graph.outputs[number] = tensor
        for node in self.graph.get_nodes():
            value = self.get(node.input[0]) if node.type == "Identity" else None
            if isinstance(value, Dense) and value.dtype != VARIANT:
                self.graph.set_dtype(node.output[0], value.dtype)
                self.graph.set_shape(node.output[0], self.graph.get_shape(value.tensor))
