"""Sequences whose elements lie in tensors: as rows of one, or side by side where extents along one axis differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.values import (
    AppendedSequence,
    Element,
    Kind,
    KnownSequence,
    RaggedSequence,
    Shape,
    StackedSequence,
    rebuilt,
)

if TYPE_CHECKING:
    from neurenix.importers.onnx.graph import Graph

Packed: TypeAlias = StackedSequence | RaggedSequence
#: The way out where a position or a length is not known.
FIX = "fix the shapes that it depends on, or, if it is an input of the model, say it: input_values={name: value}"


class Adder(Protocol):
    """Adds layers to a graph: a node, or `Layers` where none asks for them."""

    graph: Graph
    name: str

    def add(self, op: str, /, *inputs: Tensor | None, **attrs: Any) -> Tensor:
        """A layer with one output."""

    def integers(self, value: ArrayLike) -> Tensor:
        """An int64 constant."""


class Layers:
    """Adds layers of one name to a graph."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name

    def add(self, op: str, /, *inputs: Tensor | None, **attrs: Any) -> Tensor:
        """A layer with one output."""
        return self.graph.network.add_layer(op, list(inputs), attrs, self.name)[0]

    def integers(self, value: ArrayLike) -> Tensor:
        """An int64 constant."""
        return self.graph.network.add_constant(self.name, np.asarray(value, np.int64))


def packed(graph: Graph, name: str) -> Packed:
    """A sequence in tensors of the graph that has it, brought in from there.

    Raises `UnsupportedError` where its elements differ in more than the extent along one axis, or there are none.
    """
    name = graph.aliases.get(name, name)
    if graph.around is not None and not graph.has(name):
        outer = packed(graph.around, name)
        return _rebuilt(outer, [graph.inward(tensor) for tensor in graph.around.tensors_of(outer)])
    value = graph.value(name)
    assert isinstance(value, (KnownSequence, StackedSequence, RaggedSequence))
    return pack(Layers(graph, name), value, kinds(value))


def pack(at: Adder, value: KnownSequence | Packed, like: Sequence[Kind], inside: Sequence[str] = ()) -> Packed:
    """A sequence in tensors that could hold elements of all these dtypes and shapes; `like` has those of its own.

    It has rows unless extents along one axis differ, or name something that differs from step to step of a loop: a
    symbol with one of `inside` in it. Raises `UnsupportedError` where they differ in more.
    """
    axis = varying(at.name, like, inside)
    if isinstance(value, KnownSequence) and not value.elements:
        return _empty(at, *like[0], axis)
    return rows(at, value) if axis is None else ragged(at, value, axis)


def kinds(value: KnownSequence | Packed | AppendedSequence) -> list[Kind]:
    """dtype and shape of the elements that a sequence stands for; an extent in which they differ is ''."""
    if isinstance(value, (KnownSequence, AppendedSequence)):
        return [kind_of(element) for element in value.elements]
    shape = value.tensor.shape
    if isinstance(value, StackedSequence):
        return [(value.tensor.dtype, shape[1:])]
    return [(value.tensor.dtype, (*shape[: value.axis], "", *shape[value.axis + 1 :]))]


def kind_of(element: Element) -> Kind:
    """dtype and shape of one."""
    array = element.array if element.tensor is None else element.tensor
    assert array is not None
    return array.dtype, tuple(array.shape)


def varying(name: str, like: Sequence[Kind], inside: Sequence[str] = ()) -> int | None:
    """The axis along which extents of elements differ; None where all have one shape.

    Raises `UnsupportedError` where they differ in more, or there are none.
    """
    ranks = {(dtype, len(shape)) for dtype, shape in like}
    axes = [
        axis
        for axis, extents in enumerate(zip(*(shape for _, shape in like), strict=False))
        if len(set(extents)) > 1 or any(isinstance(e, str) and (not e or any(i in e for i in inside)) for e in extents)
    ]
    if len(ranks) != 1 or len(axes) > 1:
        raise UnsupportedError(
            "elements of a sequence of which a call decides the length or positions differ in more than one extent",
            tensor=name,
            expected="elements of one dtype and of shapes that differ along one axis, or a known length and positions",
            got=", ".join(f"{dtype}{list(shape)}" for dtype, shape in like[:8]) or "an empty sequence",
            hint=FIX,
        )
    return axes[0] if axes else None


def _empty(at: Adder, dtype: Any, shape: Shape, axis: int | None) -> Packed:
    """A sequence without elements, of tensors of this kind."""
    if axis is None:
        return StackedSequence(_zeros(at, dtype, (0, *shape)))
    extents = (*shape[:axis], 0, *shape[axis + 1 :])
    return RaggedSequence(_zeros(at, dtype, extents), at.integers(np.zeros(0, np.int64)), axis)


def _zeros(at: Adder, dtype: Any, extents: Shape) -> Tensor:
    parts = [at.integers([e]) if isinstance(e, int) else _extent(at.graph, e, at.name) for e in extents]
    return at.add("ConstantOfShape", at.add("Concat", *parts, axis=0), value=0.0, dtype=dtype)


def _extent(graph: Graph, symbol: str, name: str) -> Tensor:
    """A size that only a call knows, int64 [1], from a tensor that has it."""
    for tensor in graph.tensors.values():
        if symbol in tensor.shape:
            return along(Layers(graph, name), tensor, tensor.shape.index(symbol))
    if graph.around is None:
        raise UnsupportedError(
            "nothing around a Loop tells the shape of the elements of a sequence that it fills",
            tensor=name,
            expected="elements whose extents are known, or those of a tensor around",
            got=symbol,
            hint=FIX,
        )
    return graph.inward(_extent(graph.around, symbol, name))


def along(at: Adder, x: Tensor, axis: int) -> Tensor:
    """The extent along an axis: int64 [1]."""
    return at.add("Shape", x, start=axis, end=axis + 1)


def rows(at: Adder, value: KnownSequence | Packed) -> StackedSequence:
    """As rows. What has extents that may differ fails in a call where they do."""
    if isinstance(value, KnownSequence):
        parts = [at.add("Unsqueeze", at.graph.bring(element), axes=[0]) for element in value.elements]
        return StackedSequence(at.add("Concat", *parts, axis=0) if len(parts) > 1 else parts[0])
    x = at.graph.bring(Element(value.tensor))
    if isinstance(value, StackedSequence):
        return StackedSequence(x)
    # [a, total, b] to [a, length, extent, b]: so many elements there are only where all have the greatest extent.
    axis, lengths = value.axis, at.graph.bring(Element(value.lengths))
    most = at.add("ReduceMax", lengths, axes=[0], keepdims=1)
    y = reshaped(at, x, axis, 1, along(at, lengths, 0), most)
    order = [axis, *range(axis), *range(axis + 1, len(x.shape) + 1)]
    return StackedSequence(at.add("Transpose", y, perm=order) if axis else y)


def ragged(at: Adder, value: KnownSequence | Packed, axis: int) -> RaggedSequence:
    """Side by side along an axis."""
    if isinstance(value, RaggedSequence):
        made = _rebuilt(value, at.graph.tensors_of(value))
        assert isinstance(made, RaggedSequence)
        return made
    if isinstance(value, KnownSequence):
        parts = [at.graph.bring(element) for element in value.elements]
        lengths = [along(at, part, axis) for part in parts]
        if len(parts) == 1:
            return RaggedSequence(parts[0], lengths[0], axis)
        return RaggedSequence(at.add("Concat", *parts, axis=axis), at.add("Concat", *lengths, axis=0), axis)
    x = rows(at, value).tensor
    return RaggedSequence(joined(at, x, axis), at.add("Expand", along(at, x, axis + 1), along(at, x, 0)), axis)


def joined(at: Adder, x: Tensor, axis: int) -> Tensor:
    """The rows of a tensor side by side along an axis of theirs."""
    # [length, a, b, c] to [a, length, b, c] for axis 1.
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(x.shape))]
    return merged(at, at.add("Transpose", x, perm=order) if axis else x, axis)


def merged(at: Adder, x: Tensor, axis: int) -> Tensor:
    """An axis and the one behind it as one."""
    return reshaped(at, x, axis, 2, at.add("Mul", along(at, x, axis), along(at, x, axis + 1)))


def reshaped(at: Adder, x: Tensor, axis: int, count: int, *extents: Tensor) -> Tensor:
    """A tensor with other extents, int64 [1] each, in the place of `count` axes; a call fails where they don't fit."""
    before = at.add("Shape", x, start=0, end=axis)
    behind = at.add("Shape", x, start=axis + count, end=len(x.shape))
    return at.add("Reshape", x, at.add("Concat", before, *extents, behind, axis=0), allowzero=1)


def length(at: Adder, value: Packed) -> Tensor:
    """How many elements there are: int64 []."""
    count = along(at, value.tensor if isinstance(value, StackedSequence) else value.lengths, 0)
    return at.add("Reshape", count, at.integers([]))


def element(at: Adder, value: Packed, place: Tensor) -> Tensor:
    """That at a position, int64 []; those below zero count from the end."""
    if isinstance(value, StackedSequence):
        return at.add("Gather", value.tensor, place, axis=0)
    where = at.add("Reshape", place, at.integers([1]))
    start = _offset(at, value, where)
    end = at.add("Add", start, at.add("Gather", value.lengths, where, axis=0))
    return at.add("Slice", value.tensor, start, end, at.integers([value.axis]))


def single(at: Adder, like: Packed, x: Tensor) -> Packed:
    """A sequence of one tensor, in the form of another sequence."""
    if isinstance(like, StackedSequence):
        return StackedSequence(at.add("Unsqueeze", x, axes=[0]))
    return RaggedSequence(x, along(at, x, like.axis), like.axis)


def concat(at: Adder, *parts: Packed) -> Packed:
    """Sequences one behind the other, all in the form of the first."""
    axes = [parts[0].axis, 0] if isinstance(parts[0], RaggedSequence) else [0]
    lists = zip(*(at.graph.tensors_of(part) for part in parts), strict=True)
    return _rebuilt(parts[0], [at.add("Concat", *x, axis=axis) for x, axis in zip(lists, axes, strict=True)])


def cut(at: Adder, value: Packed, end: Tensor, start: Tensor) -> tuple[Packed, Packed]:
    """The elements before one position, int64 [1], and those from another on."""
    zero, last = at.integers([0]), at.integers([np.iinfo(np.int64).max])

    def sliced(x: Tensor, to: Tensor, since: Tensor, axis: int) -> list[Tensor]:
        axes = at.integers([axis])
        return [at.add("Slice", x, zero, to, axes), at.add("Slice", x, since, last, axes)]

    if isinstance(value, StackedSequence):
        parts = [[x] for x in sliced(value.tensor, end, start, 0)]
    else:
        tensors = sliced(value.tensor, _offset(at, value, end), _offset(at, value, start), value.axis)
        parts = [[x, lengths] for x, lengths in zip(tensors, sliced(value.lengths, end, start, 0), strict=True)]
    before, behind = (_rebuilt(value, part) for part in parts)
    return before, behind


def _offset(at: Adder, value: RaggedSequence, place: Tensor) -> Tensor:
    """Where the element at a position begins: int64 [1]."""
    before = at.add("Slice", value.lengths, at.integers([0]), place, at.integers([0]))
    return at.add("ReduceSum", before, axes=[0], keepdims=1)


def _rebuilt(like: Packed, tensors: Sequence[Tensor]) -> Packed:
    made = rebuilt(like, iter(tensors))
    assert isinstance(made, (StackedSequence, RaggedSequence))
    return made
