"""Sequences: lists of tensors that the import keeps track of, or tensors along a new first axis. No layer holds one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.tensor import slices
from neurenix.importers.onnx.values import (
    AppendedSequence,
    AppendOnlyError,
    Element,
    Given,
    KnownSequence,
    StackedSequence,
    Value,
    kind,
)

if TYPE_CHECKING:
    from neurenix.importers.onnx.graph import Graph

#: So many tensors may a list have; longer ones of one shape are rows of a tensor.
MOST = 1 << 12
#: The way out where a position or a length is not known.
FIX = "fix the shapes that it depends on, or, if it is an input of the model, say it: input_values={name: value}"


def sequence(node: Node, index: int) -> Value:
    """An input that must be a sequence."""
    name = node.proto.input[index] if node.has(index) else ""
    value = node.graph.value(name) if name else None
    if not isinstance(value, (KnownSequence, StackedSequence, AppendedSequence)):
        got = kind(value) if value is not None else "a tensor" if name else "nothing"
        raise InvalidArgumentError(
            f"input {index} of {node.op} is no sequence", tensor=name, expected="a sequence", got=got
        )
    return value


def listed(node: Node, index: int) -> KnownSequence | StackedSequence:
    """An input that must be a sequence of which more than the end may be read."""
    value = sequence(node, index)
    if isinstance(value, AppendedSequence):
        raise AppendOnlyError(value.owner, node.op)
    assert isinstance(value, (KnownSequence, StackedSequence))
    return value


def construct(node: Node) -> Given:
    """SequenceConstruct: a list of its inputs."""
    return KnownSequence(tuple(element(node, index) for index in range(len(node))))


def element(node: Node, index: int) -> Element:
    """An input that must be a tensor."""
    given = node.graph.given(node.proto.input[index])
    return given if isinstance(given, Element) else Element(node[index])


def empty(node: Node) -> Given:
    """SequenceEmpty."""
    return KnownSequence(())


def length(node: Node) -> Given:
    """SequenceLength: a rank-0 int64."""
    value = listed(node, 0)
    if isinstance(value, KnownSequence):
        return np.asarray(len(value.elements), np.int64)
    return node.add("Gather", node.add("Shape", _rows(node, value)), node.integers(0))


def at(node: Node) -> Given:
    """SequenceAt: by a known position an element of the list, else a row of the stacked elements."""
    value, place = listed(node, 0), node.known(1)
    if isinstance(value, KnownSequence) and place:
        return value.elements[_place(node, place[0], len(value.elements))]
    return node.add("Gather", stacked(node.graph, node.proto.input[0]), _rank_0(node, node[1]), axis=0)


def _place(node: Node, place: int, count: int) -> int:
    if not -count <= place < count:
        raise ShapeError(
            f"the position of {node.op} is out of range",
            tensor=node.proto.input[0],
            expected=f"{-count} to {count - 1}" if count else "a sequence that has elements",
            got=str(place),
        )
    return place % count


def _rank_0(node: Node, x: Tensor) -> Tensor:
    return node.add("Reshape", x, node.integers([])) if len(x.shape) else x


def insert(node: Node) -> Given:
    """SequenceInsert: at the end unless there is a position, which may be the end's."""
    value, new = sequence(node, 0), element(node, 1)
    if not node.has(2):
        return _appended(node, value, new)
    value, place = listed(node, 0), node.known(2)
    if isinstance(value, KnownSequence) and place:
        count = len(value.elements)
        # As many positions as elements, and the one behind them.
        where = place[0] if place[0] == count else _place(node, place[0], count)
        return KnownSequence((*value.elements[:where], new, *value.elements[where:]))
    before, behind = _parts(node, _rank_1(node, node[2]), _rank_1(node, node[2]))
    return StackedSequence(node.add("Concat", before, _row(node, new), behind, axis=0))


def _appended(node: Node, value: Value, new: Element) -> Value:
    if isinstance(value, AppendedSequence):
        return AppendedSequence(value.owner, (*value.elements, new))
    if isinstance(value, StackedSequence):
        return StackedSequence(node.add("Concat", _rows(node, value), _row(node, new), axis=0))
    assert isinstance(value, KnownSequence)
    return KnownSequence((*value.elements, new))


def _rows(node: Node, value: StackedSequence) -> Tensor:
    return node.graph.bring(Element(value.tensor))


def _row(node: Node, new: Element) -> Tensor:
    return node.add("Unsqueeze", node.graph.bring(new), axes=[0])


def _rank_1(node: Node, place: Tensor) -> Tensor:
    return node.add("Reshape", place, node.integers([1]))


def _parts(node: Node, end: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """The stacked elements before one position, and those from another on."""
    whole = stacked(node.graph, node.proto.input[0])
    axes = node.integers([0])
    last = node.integers([np.iinfo(np.int64).max])
    return node.add("Slice", whole, node.integers([0]), end, axes), node.add("Slice", whole, start, last, axes)


def erase(node: Node) -> Given:
    """SequenceErase: the last element unless there is a position."""
    value, place = listed(node, 0), node.known(1) if node.has(1) else [-1]
    if isinstance(value, KnownSequence) and place:
        where = _place(node, place[0], len(value.elements))
        return KnownSequence((*value.elements[:where], *value.elements[where + 1 :]))
    if place == [-1]:
        return StackedSequence(_parts(node, node.integers([-1]), node.integers([-1]))[0])
    total = node.add("Shape", stacked(node.graph, node.proto.input[0]), start=0, end=1)
    where_ = node.add("Mod", _rank_1(node, node[1]), node.add("Cast", total, to=node[1].dtype))
    behind = node.add("Add", where_, node.like(1, where_))
    return StackedSequence(node.add("Concat", *_parts(node, where_, behind), axis=0))


def split(node: Node) -> Given:
    """SplitToSequence: of known extents a list, else slices of one as rows."""
    x, axis = node[0], node.attr("axis", 0)
    if not -len(x.shape) <= axis < len(x.shape):
        raise ShapeError(
            "the axis of a SplitToSequence is out of range", expected=f"rank {len(x.shape)}", got=str(axis)
        )
    axis, total = axis % len(x.shape), x.shape[axis % len(x.shape)]
    if not node.has(1):
        return _slices(node, x, axis, bool(node.attr("keepdims", 1)))
    sizes = node.known(1)
    if len(node[1].shape) == 0:
        if not sizes or (not isinstance(total, int) and sizes[0] != 1):
            raise UnsupportedError(
                "SplitToSequence makes an unknown number of tensors",
                tensor=node.proto.input[0],
                expected="a known size of the parts, and a known extent along the axis",
                got=f"{sizes[0] if sizes else 'an unknown size'} of {total}",
                hint=FIX,
            )
        if sizes[0] < 1:
            raise ShapeError("the parts of a SplitToSequence have no size", expected="1 or more", got=str(sizes[0]))
        if not isinstance(total, int) or (sizes[0] == 1 and total > MOST):
            return _slices(node, x, axis, True)
        _limit(node, -(-total // sizes[0]))
        sizes = [min(sizes[0], total - start) for start in range(0, total, sizes[0])]
    elif sizes is None:
        return _between(node, axis)
    return KnownSequence(tuple(_of(node, part) for part in node.add_all("Split", [x], axis=axis, split=sizes)))


def _limit(node: Node, count: int) -> None:
    """Raises `UnsupportedError` where a list would have too many tensors."""
    if count > MOST:
        raise UnsupportedError(
            f"{node.op} makes too many tensors", expected=f"at most {MOST}", got=str(count), hint="make larger parts"
        )


def _between(node: Node, axis: int) -> Given:
    """Parts whose number is known, and whose sizes a call decides."""
    count = node[1].shape[0]
    if isinstance(count, int):
        _limit(node, count)
    if not isinstance(count, int):
        raise UnsupportedError(
            "SplitToSequence makes an unknown number of tensors", tensor=node.proto.input[1], got=f"{count}", hint=FIX
        )
    sizes = node.add("Cast", node[1], to="int64")
    starts = node.add("CumSum", sizes, node.integers(0), exclusive=1)
    return KnownSequence(tuple(map(Element, slices(node, axis, starts, sizes, count))))


def _of(node: Node, part: Tensor) -> Element:
    """A part of a tensor; known where the tensor is."""
    value = part.known() if node.graph.is_determined(node.proto.input[0]) else None
    return Element(part) if value is None else Element(None, value, determined=True)


def _slices(node: Node, x: Tensor, axis: int, keep: bool) -> Given:
    """Slices of one along an axis, which they keep or not."""
    total = x.shape[axis]
    if not isinstance(total, int) or total > MOST:
        order = [axis, *(other for other in range(len(x.shape)) if other != axis)]
        rows = node.add("Transpose", x, perm=order) if axis else x
        return StackedSequence(node.add("Unsqueeze", rows, axes=[axis + 1]) if keep else rows)
    parts = node.add_all("Split", [x], axis=axis, split=[1] * total) if total else []
    if not keep:
        parts = [node.add("Squeeze", part, axes=[axis]) for part in parts]
    return KnownSequence(tuple(_of(node, part) for part in parts))


def concat(node: Node) -> Tensor:
    """ConcatFromSequence: along an axis of the elements, or along a new one."""
    value, axis, new = listed(node, 0), node.need("axis"), bool(node.attr("new_axis", 0))
    if isinstance(value, StackedSequence):
        return joined(node, _rows(node, value), axis, new)
    if not value.elements:
        raise ShapeError(f"{node.op} of an empty sequence has no shape", tensor=node.proto.input[0])
    parts = [node.graph.bring(part) for part in value.elements]
    if new:
        parts = [node.add("Unsqueeze", part, axes=[axis]) for part in parts]
    return node.add("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


def joined(node: Node, rows: Tensor, axis: int, new: bool) -> Tensor:
    """The rows of a tensor side by side along an axis of theirs, or along a new one."""
    rank = len(rows.shape) - 1
    limit = rank + new
    if not -limit <= axis < limit:
        raise ShapeError(f"the axis of {node.op} is out of range", expected=f"{-limit} to {limit - 1}", got=str(axis))
    axis %= limit
    # [length, a, b, c] to [a, length, b, c] for axis 1.
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
    y = node.add("Transpose", rows, perm=order) if axis else rows
    return y if new else merged(node, y, axis)


def merged(node: Node, x: Tensor, axis: int) -> Tensor:
    """An axis and the one behind it as one."""

    def extents(start: int, end: int) -> Tensor:
        return node.add("Shape", x, start=start, end=end)

    both = node.add("Mul", extents(axis, axis + 1), extents(axis + 1, axis + 2))
    shape = node.add("Concat", extents(0, axis), both, extents(axis + 2, len(x.shape)), axis=0)
    return node.add("Reshape", x, shape, allowzero=1)


def stacked(graph: Graph, name: str) -> Tensor:
    """The elements of a sequence along a new first axis, in the graph that has the sequence, brought in from there.

    Raises `UnsupportedError` where their shapes differ, or there are none.
    """
    name = graph.aliases.get(name, name)
    if graph.around is not None and not graph.has(name):
        return graph.inward(stacked(graph.around, name))
    value = graph.value(name)
    if isinstance(value, StackedSequence):
        return graph.bring(Element(value.tensor))
    assert isinstance(value, KnownSequence)
    return stack(graph, [graph.bring(part) for part in value.elements], name)


def stack(graph: Graph, tensors: list[Tensor], name: str) -> Tensor:
    """Tensors of one shape along a new first axis."""
    if not tensors or any((t.dtype, t.shape) != (o.dtype, o.shape) for t, o in pairwise(tensors)):
        raise UnsupportedError(
            "a position that only a call knows chooses among elements of different shapes",
            tensor=name,
            expected="a known position, or elements of one shape",
            got=", ".join(f"{t.dtype}{list(t.shape)}" for t in tensors[:8]) or "an empty sequence",
            hint=FIX,
        )
    rows = [graph.network.add_layer("Unsqueeze", [tensor], {"axes": [0]}, name)[0] for tensor in tensors]
    return graph.network.add_layer("Concat", rows, {"axis": 0}, name)[0] if len(rows) > 1 else rows[0]


RULES: dict[str, Rule] = {
    "ConcatFromSequence": concat,
    "SequenceAt": at,
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SplitToSequence": split,
}
