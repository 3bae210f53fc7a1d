"""Sequences: lists of tensors that the import keeps track of, or, where a call decides the length, tensors.

No layer holds a sequence.
"""

from __future__ import annotations

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.importers.onnx import packed
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.packed import Packed
from neurenix.importers.onnx.tensor import slices
from neurenix.importers.onnx.values import (
    AppendedSequence,
    AppendOnlyError,
    Element,
    Given,
    KnownSequence,
    RaggedSequence,
    StackedSequence,
    Value,
    kind,
)

#: So many tensors may a split make a list of; what has more of them lies in tensors.
MOST = 1 << 12


def sequence(node: Node, index: int) -> KnownSequence | Packed | AppendedSequence:
    """An input that must be a sequence."""
    name = node.proto.input[index] if node.has(index) else ""
    value = node.graph.value(name) if name else None
    if not isinstance(value, (KnownSequence, StackedSequence, RaggedSequence, AppendedSequence)):
        got = kind(value) if value is not None else "a tensor" if name else "nothing"
        raise InvalidArgumentError(
            f"input {index} of {node.op} is no sequence", tensor=name, expected="a sequence", got=got
        )
    return value


def listed(node: Node, index: int) -> KnownSequence | Packed:
    """An input that must be a sequence of which more than the end may be read."""
    value = sequence(node, index)
    if isinstance(value, AppendedSequence):
        raise AppendOnlyError(value.owner, node.op, packed.kinds(value))
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
    return packed.length(node, _packed(node))


def at(node: Node) -> Given:
    """SequenceAt: by a known position an element of the list, else of the tensors that the elements lie in."""
    value, place = listed(node, 0), node.known(1)
    if isinstance(value, KnownSequence) and place:
        return value.elements[_place(node, place[0], len(value.elements))]
    where = node.add("Reshape", node[1], node.integers([])) if len(node[1].shape) else node[1]
    return packed.element(node, _packed(node), where)


def _packed(node: Node) -> Packed:
    """The sequence that a node reads, in tensors of its graph."""
    return packed.packed(node.graph, node.proto.input[0])


def _place(node: Node, place: int, count: int) -> int:
    if not -count <= place < count:
        raise ShapeError(
            f"the position of {node.op} is out of range",
            tensor=node.proto.input[0],
            expected=f"{-count} to {count - 1}" if count else "a sequence that has elements",
            got=str(place),
        )
    return place % count


def insert(node: Node) -> Given:
    """SequenceInsert: at the end unless there is a position, which may be the end's."""
    value, new = sequence(node, 0), element(node, 1)
    if not node.has(2):
        return _appended(node, value, new)
    if isinstance(value, AppendedSequence):
        raise AppendOnlyError(value.owner, node.op, [*packed.kinds(value), packed.kind_of(new)])
    place = node.known(2)
    if isinstance(value, KnownSequence) and place:
        count = len(value.elements)
        # As many positions as elements, and the one behind them.
        where = place[0] if place[0] == count else _place(node, place[0], count)
        return KnownSequence((*value.elements[:where], new, *value.elements[where:]))
    known_empty = isinstance(value, KnownSequence) and not value.elements
    whole, one = _beside(node, value if known_empty else _packed(node), new)
    # Positions below zero count from the last element, not from the place behind it.
    given = _rank_1(node, node[2])
    below = node.add("Less", given, node.integers([0]))
    where_ = _in_range(node, whole, node.add("Where", below, node.add("Sub", given, node.integers([1])), given), 1)
    before, behind = packed.cut(node, whole, where_, where_)
    return packed.concat(node, before, one, behind)


def _appended(node: Node, value: KnownSequence | Packed | AppendedSequence, new: Element) -> Value:
    if isinstance(value, AppendedSequence):
        return AppendedSequence(value.owner, (*value.elements, new))
    if isinstance(value, KnownSequence):
        return KnownSequence((*value.elements, new))
    return packed.concat(node, *_beside(node, value, new))


def _beside(node: Node, value: KnownSequence | Packed, new: Element) -> tuple[Packed, Packed]:
    """A sequence, and a tensor as one of the same form."""
    whole = packed.pack(node, value, [*packed.kinds(value), packed.kind_of(new)])
    return whole, packed.single(node, whole, node.graph.bring(new))


def _rank_1(node: Node, place: Tensor) -> Tensor:
    return node.add("Cast", node.add("Reshape", place, node.integers([1])), to="int64")


def _in_range(node: Node, value: Packed, place: Tensor, more: int) -> Tensor:
    """A position counted from the front; a call fails where there are not so many elements, and so many `more`."""
    count = node.add("Add", packed.length(node, value), node.integers(more))
    places = node.add("Range", node.integers(0), count, node.integers(1))
    return node.add("Gather", places, place, axis=0)


def erase(node: Node) -> Given:
    """SequenceErase: the last element unless there is a position."""
    value, place = listed(node, 0), node.known(1) if node.has(1) else [-1]
    if isinstance(value, KnownSequence) and place:
        where = _place(node, place[0], len(value.elements))
        return KnownSequence((*value.elements[:where], *value.elements[where + 1 :]))
    whole = _packed(node)
    where_ = _in_range(node, whole, _rank_1(node, node[1]) if node.has(1) else node.integers([-1]), 0)
    return packed.concat(node, *packed.cut(node, whole, where_, node.add("Add", where_, node.integers([1]))))


def split(node: Node) -> Given:
    """SplitToSequence: of known extents a list, else slices of one as rows."""
    x, axis = node[0], node.attr("axis", 0)
    if not -len(x.shape) <= axis < len(x.shape):
        raise ShapeError(
            "the axis of a SplitToSequence is out of range", expected=f"rank {len(x.shape)}", got=str(axis)
        )
    axis, total = axis % len(x.shape), x.shape[axis % len(x.shape)]
    keep = bool(node.attr("keepdims", 1))
    if not node.has(1):
        return _slices(node, x, axis, keep)
    sizes = node.known(1)
    if len(node[1].shape) == 0:
        if sizes and sizes[0] < 1:
            raise ShapeError("the parts of a SplitToSequence have no size", expected="1 or more", got=str(sizes[0]))
        # ONNX has it that a given split keeps dimensions; what PyTorch writes for `unbind`, and ONNX Runtime, do not.
        if sizes == [1] and (not keep or not isinstance(total, int) or total > MOST):
            return _slices(node, x, axis, keep)
        if not sizes or not isinstance(total, int) or total > MOST * sizes[0]:
            return _equal_parts(node, x, axis)
        sizes = [min(sizes[0], total - start) for start in range(0, total, sizes[0])]
    elif sizes is None:
        return _between(node, x, axis)
    return KnownSequence(tuple(_of(node, part) for part in node.add_all("Split", [x], axis=axis, split=sizes)))


def _equal_parts(node: Node, x: Tensor, axis: int) -> Given:
    """Parts of one size, of which a call decides how many there are; the last one may be smaller."""
    size = node.add("Cast", node[1], to="int64")
    total = node.add("Reshape", packed.along(node, x, axis), node.integers([]))
    starts = node.add("Range", node.integers(0), total, size)
    return RaggedSequence(x, node.add("Min", size, node.add("Sub", total, starts)), axis)


def _between(node: Node, x: Tensor, axis: int) -> Given:
    """Parts whose sizes a call decides."""
    count = node[1].shape[0]
    sizes = node.add("Cast", node[1], to="int64")
    if not isinstance(count, int) or count > MOST:
        # Sizes that are not those of all of it make this fail.
        total = node.add("ReduceSum", sizes, axes=[0], keepdims=1)
        return RaggedSequence(packed.reshaped(node, x, axis, 1, total), sizes, axis)
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
    if isinstance(value, KnownSequence):
        if not value.elements:
            raise ShapeError(f"{node.op} of an empty sequence has no shape", tensor=node.proto.input[0])
        parts = [node.graph.bring(part) for part in value.elements]
        if new:
            parts = [node.add("Unsqueeze", part, axes=[axis]) for part in parts]
        return node.add("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0]
    whole = _packed(node)
    rank = len(whole.tensor.shape) - isinstance(whole, StackedSequence)
    limit = rank + new
    if not -limit <= axis < limit:
        raise ShapeError(f"the axis of {node.op} is out of range", expected=f"{-limit} to {limit - 1}", got=str(axis))
    axis %= limit
    if new:
        rows = packed.rows(node, whole).tensor
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
        return node.add("Transpose", rows, perm=order) if axis else rows
    if isinstance(whole, RaggedSequence) and axis == whole.axis:
        return whole.tensor
    return packed.joined(node, packed.rows(node, whole).tensor, axis)


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
