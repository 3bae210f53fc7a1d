"""Lists as what they are in ONNX: nothing but a number of elements yet, or a tensor of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurenix.importers.tensorflow.lists.refusals import without_shape
from neurenix.importers.tensorflow.recurrent.nodes import Nodes


@dataclass
class Blank:
    """A list nothing is written to: its number of elements, a scalar tensor, and what is known of their shape."""

    count: str
    outline: list[int] | None
    dtype: int

    @property
    def shape(self) -> list[int] | None:
        """The shape of an element, if all of it is known."""
        return known(self.outline)


@dataclass
class Dense:
    """A list whose elements lie along the first axis of a tensor. `dtype`: 0 where it is not known."""

    tensor: str
    dtype: int


List = Blank | Dense


def known(shape: Sequence[int] | None) -> list[int] | None:
    """A shape without open dimensions, or None."""
    return None if shape is None or any(one is None or one < 0 for one in shape) else [int(one) for one in shape]


class Tensors(Nodes):
    """Makes the nodes that lists need; sizes are int64 of one axis."""

    def typed(self, op: str, inputs: Sequence[str], dtype: int, shape: Any = None, **attributes: Any) -> str:
        """The only output of a new node whose dtype is known."""
        node = self.graph.make_node(
            op, list(inputs), attr=attributes, op_name_scope=self.scope, dtypes=[dtype], shapes=[shape]
        )
        return str(node.output[0])

    def sizes(self, tensor: str) -> str:
        """A number or several, as int64 of one axis."""
        from onnx import TensorProto

        wide = self.typed("Cast", [tensor], TensorProto.INT64, to=TensorProto.INT64)
        return self.typed("Reshape", [wide, self.const([-1])], TensorProto.INT64, [-1])

    def integers(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of int64 of one axis."""
        from onnx import TensorProto

        return self.typed(op, inputs, TensorProto.INT64, [-1], **attributes)

    def dims(self, tensor: str, first: int, end: int = np.iinfo(np.int64).max) -> str:
        """Dimensions of a tensor, from one to before another."""
        return self.integers(
            "Slice", self.integers("Shape", tensor), self.const([first]), self.const([end]), self.const([0])
        )

    def zeros(self, count: str, shape: str | Sequence[int], dtype: int) -> str:
        """So many elements of zeros. `shape`: of an element, known or a tensor."""
        from onnx import TensorProto, helper
        from tf2onnx import utils

        rest = shape if isinstance(shape, str) else self.const(np.array(shape, np.int64))
        dims = self.integers("Concat", count, rest, axis=0)
        kind = np.dtype(utils.map_onnx_to_numpy_type(dtype))
        narrow = {np.dtype(bool): TensorProto.BOOL}.get(kind, dtype)
        value = helper.make_tensor("value", narrow, [1], np.zeros(1, kind))
        open_shape = None if isinstance(shape, str) else [-1, *shape]
        return self.typed("ConstantOfShape", [dims], dtype, open_shape, value=value)

    def dense(self, value: List, shape: str | Sequence[int] | None) -> str:
        """The tensor of a list. `shape`: of an element, where the list has none. Raises `UnsupportedError` without."""
        if isinstance(value, Dense):
            return value.tensor
        shape = shape if value.shape is None else value.shape
        if shape is None:
            raise without_shape(self.scope)
        return self.zeros(self.sizes(value.count), shape, value.dtype)

    def grown(self, tensor: str, count: str, shape: str | Sequence[int], dtype: int) -> str:
        """A tensor with zeros behind it where it has fewer elements than `count`."""
        missing = self.integers("Sub", count, self.dims(tensor, 0, 1))
        more = self.zeros(self.integers("Max", missing, self.const([0])), shape, dtype)
        return self.typed("Concat", [tensor, more], dtype, self.open_shape(tensor), axis=0)

    def written(self, base: str, indices: str, items: str, dtype: int) -> str:
        """A tensor with elements replaced; the last one of several for an index stays.

        ONNX leaves open which one does; ours takes them in order at every level of optimisation, as TensorFlow's loop.
        """
        places = self.typed("Unsqueeze", [indices, self.const([-1])], self.graph.get_dtype(indices), [-1, 1])
        return self.typed("ScatterND", [base, places, items], dtype, self.open_shape(items))

    def open_shape(self, tensor: str) -> list[int] | None:
        """The shape of a tensor with an open first dimension."""
        shape = self.graph.get_shape(tensor)
        return None if not shape else [-1, *shape[1:]]

    def after(self, indices: str, count: str) -> str:
        """The greater of a count and one more than the greatest index."""
        top = self.integers("ReduceMax", self.integers("Concat", self.const([-1]), indices, axis=0), keepdims=1)
        return self.integers("Max", self.integers("Add", top, self.const([1])), count)
