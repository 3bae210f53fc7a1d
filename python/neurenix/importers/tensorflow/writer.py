"""What puts nodes of ONNX's in the place of one of TensorFlow's, in a graph of tf2onnx's."""

from __future__ import annotations

from typing import Any

import numpy as np


class Writer:
    """Adds nodes to a graph, and in the end puts one in the place of TensorFlow's."""

    def __init__(self, context: Any, node: Any) -> None:
        from tf2onnx import utils

        self.context, self.node = context, node
        self.dtype = context.get_dtype(node.output[0])
        #: The dtype of the result.
        self.numpy = np.dtype(utils.map_onnx_to_numpy_type(self.dtype))

    def const(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant."""
        from tf2onnx import utils

        return str(self.context.make_const(utils.make_name(self.node.name), np.array(value, dtype)).output[0])

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A node with one output."""
        return str(self.context.make_node(op, list(inputs), attr=attrs).output[0])

    def back(self, tensor: str, perm: list[int]) -> None:
        """Adds the transpose that gives the result, of a tensor whose shape tf2onnx did not infer.

        Where several dimensions are open, tf2onnx may not know the shape: what it makes of the transpose of an axis
        without extent then, a reshape with a Squeeze, loses the Squeeze in some orders of its sets.
        """
        shape = self.context.get_shape(self.node.output[0]) or [-1, -1]
        known = [shape[perm.index(axis)] for axis in range(len(perm))] if shape.count(-1) <= 1 else None
        self.context.set_shape(tensor, known)
        self.replace("Transpose", [tensor], perm=perm)

    def int64(self, tensor: str) -> str:
        """A tensor as indices or sizes."""
        from onnx import TensorProto

        return self.add("Cast", tensor, to=TensorProto.INT64)

    def pick(self, tensor: str, index: int) -> str:
        """A list of the one element of a list at an index."""
        return self.add("Gather", tensor, self.const([index]), axis=0)

    def cast(self, tensor: str) -> str:
        """A tensor in the dtype of the result."""
        if self.context.get_dtype(tensor) == self.dtype:
            return tensor
        return self.add("Cast", tensor, to=self.dtype)

    def replace(self, op: str, inputs: list[str], **attrs: Any) -> None:
        """Adds the node that gives the result, under the name of TensorFlow's."""
        name, outputs = self.node.name, self.node.output
        dtypes, shapes = self.node.output_dtypes, self.node.output_shapes
        self.context.remove_node(name)
        self.context.make_node(op, inputs, attr=attrs, name=name, outputs=outputs, dtypes=dtypes, shapes=shapes)
