"""Sums of products with weights, whatever way a graph writes them: in one product or several, split before or behind.

A sum is kept as the weights that each tensor meets and the bias. What they are is known where the loop stands, which
has the constants; a `Recipe` computes it from these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neurenix.importers.tensorflow.recurrent.reading import ADD, NoMatch, Reader, integer, need

Array = np.ndarray[Any, Any]
#: Computes an array from those that a loop is given, by their numbers.
Recipe = Callable[[Mapping[int, Array]], Array]


@dataclass
class Linear:
    """A sum: the weights of each tensor (None: the tensor itself), and what is added."""

    terms: dict[str, Recipe | None] = field(default_factory=dict)
    bias: list[Recipe] = field(default_factory=list)

    def part(self, cut: Callable[[Array], Array]) -> Linear:
        """Columns of the sum."""
        terms: dict[str, Recipe | None] = {}
        for name, weights in self.terms.items():
            terms[name] = _cut(weights, cut)
        return Linear(terms, [_cut(one, cut, scalars=True) for one in self.bias])

    def plus(self, other: Linear) -> Linear:
        """The sum of both."""
        need(not set(self.terms) & set(other.terms))
        return Linear({**self.terms, **other.terms}, [*self.bias, *other.bias])


def _cut(recipe: Recipe | None, cut: Callable[[Array], Array], scalars: bool = False) -> Recipe:
    if recipe is None:
        raise NoMatch

    def computed(values: Mapping[int, Array]) -> Array:
        array = recipe(values)
        return array if scalars and array.ndim == 0 else cut(array)

    return computed


class Sums(Reader):
    """Finds the sums of a body and the weights in them, and the numbers of the inputs that hold weights."""

    def __init__(self, graph: Any) -> None:
        super().__init__(graph)
        self.used: set[int] = set()

    def linear(self, tensor: str) -> Linear:
        """What a tensor is the sum of."""
        tensor = self.root(tensor)
        try:
            return Linear(bias=[self.weights(tensor)])
        except NoMatch:
            # Not a weight: a sum or a product may be behind it.
            pass
        node = self.graph.get_node_by_output(tensor)
        if node is not None and node.type in (*ADD, "BiasAdd"):
            return self.linear(node.input[0]).plus(self.linear(node.input[1]))
        if node is not None and node.type in ("MatMul", "Gemm"):
            return self._product(node)
        if node is not None and node.type in ("Split", "StridedSlice"):
            cut, source = self._columns(node, tensor)
            return self.linear(source).part(cut)
        return Linear({tensor: None})

    def _product(self, node: Any) -> Linear:
        names = ("transpose_a", "transpose_b", "transA", "transB")
        factors = (node.get_attr("alpha"), node.get_attr("beta"))
        need(not any(integer(node, name) for name in names) and all(one is None or one.f == 1.0 for one in factors))
        product = Linear({self.root(node.input[0]): self.weights(node.input[1])})
        return product.plus(self.linear(node.input[2])) if len(node.input) > 2 else product

    def _columns(self, node: Any, tensor: str) -> tuple[Callable[[Array], Array], str]:
        """What takes the columns that a Split or StridedSlice of two dimensions takes, and what it takes them from."""
        if node.type == "Split":
            need(int(self.value(node.input[0])) in (1, -1))
            return _share(list(node.output).index(tensor), len(node.output)), node.input[1]
        index = self._slices(node)
        need(len(index) == 2 and index[0] == slice(None))
        return lambda array: array[..., index[1]], node.input[0]

    def _slices(self, node: Any) -> tuple[slice, ...]:
        """The index of a StridedSlice with steps of one."""
        begin, end, step = (self.value(name).tolist() for name in node.input[1:4])
        masks = [integer(node, name) for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")]
        need(not any(masks) and all(one == 1 for one in step))
        open_begin, open_end = integer(node, "begin_mask"), integer(node, "end_mask")
        found = []
        for axis, (first, last) in enumerate(zip(begin, end, strict=True)):
            start = None if open_begin >> axis & 1 or first == 0 else first
            found.append(slice(start, None if open_end >> axis & 1 else last))
        return tuple(found)

    def weights(self, tensor: str) -> Recipe:
        """What computes a tensor from constants and from inputs that each step gives on as they are."""
        tensor = self.root(tensor)
        if tensor in self.graph.input_names:
            return self._given(self.number(tensor))
        import onnx

        node = self.node(tensor)
        if node.is_const():
            array = np.asarray(node.get_tensor_value(as_list=False))
            return lambda values: array
        if node.type == "Split":
            axis, place, count = int(self.value(node.input[0])), list(node.output).index(tensor), len(node.output)
            inner = self.weights(node.input[1])
            return lambda values: np.split(inner(values), count, axis)[place]
        source = self.weights(node.input[0]) if node.type in ("Cast", "Squeeze", "StridedSlice", *ADD) else None
        if source is not None and node.type == "Cast":
            dtype = onnx.helper.tensor_dtype_to_np_dtype(integer(node, "to"))
            return lambda values: source(values).astype(dtype)
        if source is not None and node.type == "Squeeze":
            axes = tuple(node.get_attr("squeeze_dims").ints) if node.get_attr("squeeze_dims") else None
            return lambda values: np.squeeze(source(values), axes)
        if source is not None and node.type == "StridedSlice":
            index = self._slices(node)
            return lambda values: source(values)[index]
        if source is not None:
            other = self.weights(node.input[1])
            return lambda values: source(values) + other(values)
        raise NoMatch

    def _given(self, number: int) -> Recipe:
        need(self.kept(number))
        self.used.add(number)
        return lambda values: values[number]


def _share(index: int, count: int) -> Callable[[Array], Array]:
    return lambda array: np.split(array, count, -1)[index]
