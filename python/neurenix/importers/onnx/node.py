"""What a rule sees of an ONNX node: its inputs as our tensors, its attributes as plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx import onto

if TYPE_CHECKING:
    import onnx

    from neurenix.importers.onnx.graph import Graph
    from neurenix.importers.onnx.values import Given

Array = NDArray[Any]
#: A rule turns one node into layers and gives the tensors that stand for its outputs.
Rule = Callable[["Node"], "Given | Sequence[Given | None]"]


class Node:
    """One ONNX node in the middle of its import."""

    def __init__(self, graph: Graph, proto: onnx.NodeProto, name: str, version: int) -> None:
        self.graph = graph
        self.name = name
        self.op = proto.op_type
        self.version = version
        self.proto = proto
        self.outputs = list(proto.output)
        self.attrs: dict[str, Any] = {a.name: _plain(a) for a in proto.attribute}

    def __len__(self) -> int:
        return len(self.proto.input)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.proto.input) and self.proto.input[index] != ""

    def __getitem__(self, index: int) -> Tensor:
        """An input that must be given."""
        if not self.has(index):
            raise InvalidArgumentError(f"input {index} is missing")
        return self.graph.tensor(self.proto.input[index])

    def get(self, index: int) -> Tensor | None:
        """An input that may be left out."""
        return self[index] if self.has(index) else None

    def all(self) -> list[Tensor | None]:
        """All inputs."""
        return [self.get(i) for i in range(len(self))]

    def array(self, index: int) -> Array | None:
        """The elements of an input that is constant."""
        return self.graph.constant(self.proto.input[index]) if self.has(index) else None

    def ints(self, index: int) -> list[int] | None:
        """The elements of an integer input, when they are known; None when it is left out.

        Raises `UnsupportedError` if they depend on the data.
        """
        value = self.known(index)
        if value is None and self.has(index):
            raise UnsupportedError(
                f"input {index} must be known when the model is imported",
                expected="a constant, or integers that fixed shapes determine",
                hint="fix the shapes of its inputs, or, if it is an input itself, say it: input_values={name: value}",
            )
        return value

    def known(self, index: int) -> list[int] | None:
        """The elements of an integer input; None when it is left out, or only a call tells them."""
        if not self.has(index):
            return None
        known = self.array(index)
        value = known.reshape(-1).tolist() if known is not None else self[index].value
        if value is None or not all(isinstance(v, int) for v in value):
            return [] if 0 in self[index].shape else None
        return [int(v) for v in value]

    def truth(self, index: int) -> bool | None:
        """A condition, where constants and fixed shapes tell it."""
        array = self.array(index)
        if array is not None:
            return bool(array.reshape(-1)[0])
        value = self[index].value
        return bool(value[0]) if value and isinstance(value[0], int) else None

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, or what ONNX says it is when it is left out."""
        return self.attrs.get(name, default)

    def need(self, name: str) -> Any:
        """An attribute that must be given."""
        if name not in self.attrs:
            raise InvalidArgumentError(f"attribute {name!r} is missing")
        return self.attrs[name]

    def refuse(self, name: str, default: Any) -> None:
        """Raises `UnsupportedError` unless an attribute has its default value."""
        if name in self.attrs and self.attrs[name] != default:
            raise UnsupportedError(
                f"attribute {name!r} is not supported", expected=repr(default), got=repr(self.attrs[name])
            )

    def add(self, op: str, /, *inputs: Tensor | None, **attrs: Any) -> Tensor:
        """Adds a layer with one output."""
        return self.add_all(op, inputs, **attrs)[0]

    def add_all(self, op: str, inputs: Sequence[Tensor | None], /, **attrs: Any) -> list[Tensor]:
        """Adds a layer and gives all its outputs."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        return self.graph.network.add_layer(op, onto.expanded(self, op, given, attrs), attrs, self.name)

    def add_with(self, op: str, inputs: Sequence[Tensor | None], into: str, index: int, **attrs: Any) -> Tensor:
        """Adds a layer with one output, one of whose attributes is the elements of an input of the node."""
        how_many = all(isinstance(extent, int) for extent in self[index].shape)
        values = self.known(index) if how_many else self.ints(index)
        if values is not None:
            return self.add(op, *inputs, **{into: values}, **attrs)
        return self.add("Deferred", self[index], *inputs, op=op, into=into, attrs=attrs)

    def constant(self, value: ArrayLike, dtype: Any = None) -> Tensor:
        """Adds a constant."""
        return self.graph.network.add_constant(self.name, np.asarray(value, dtype))

    def integers(self, value: ArrayLike) -> Tensor:
        """Adds an int64 constant."""
        return self.constant(value, np.int64)

    def like(self, value: float, tensor: Tensor) -> Tensor:
        """Adds a rank-0 constant of a tensor's dtype."""
        return self.constant(value, tensor.dtype)


def _plain(attr: onnx.AttributeProto) -> Any:
    from onnx.helper import get_attribute_value

    if attr.ref_attr_name:
        raise UnsupportedError(f"attribute {attr.name!r} refers to one of an enclosing function")
    value = get_attribute_value(attr)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (int, float)) or hasattr(value, "DESCRIPTOR"):
        return value
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]
