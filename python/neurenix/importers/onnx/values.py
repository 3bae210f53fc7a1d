"""What a name of an ONNX graph stands for besides tensors: sequences and optional values, settled at the import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from numpy.typing import NDArray

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError


@dataclass(frozen=True, eq=False)
class Element:
    """One tensor, with its elements where it is constant."""

    #: None for a constant that no layer reads yet.
    tensor: Tensor | None
    array: NDArray[Any] | None = None
    #: Whether literals and fixed shapes determine it: such a one may say sizes and axes.
    determined: bool = False


@dataclass(frozen=True, eq=False)
class KnownSequence:
    """A sequence whose length the import knows: a list of tensors, which may differ in shape."""

    elements: tuple[Element, ...]


@dataclass(frozen=True, eq=False)
class StackedSequence:
    """A sequence whose length a call decides: tensors of one shape, [length, *shape]."""

    tensor: Tensor


@dataclass(frozen=True, eq=False)
class RaggedSequence:
    """A sequence whose elements differ in their extent along one axis, along which they lie side by side."""

    tensor: Tensor
    #: The extent of each element: int64 [length].
    lengths: Tensor
    #: Counted from the front.
    axis: int


class AppendedSequence:
    """What the body of a Loop sees of a sequence that the loop grows: it may append to it, and nothing else."""

    def __init__(self, owner: object, elements: tuple[Element, ...] = ()) -> None:
        #: Who carries the sequence through the loop.
        self.owner = owner
        #: What a step has appended so far.
        self.elements = elements


class AppendedTensor(AppendedSequence):
    """What the body of a Loop sees of a tensor that each step only makes longer by a Concat."""


@dataclass(frozen=True, eq=False)
class EmptyOptional:
    """An optional value without an element. One that has an element is that element itself."""


#: A sequence that may be read.
List: TypeAlias = KnownSequence | StackedSequence | RaggedSequence
Shape: TypeAlias = tuple[int | str, ...]
#: dtype and shape of a tensor.
Kind: TypeAlias = tuple[Any, Shape]
Value: TypeAlias = KnownSequence | StackedSequence | RaggedSequence | AppendedSequence | EmptyOptional
#: What a rule may give for an output.
Given: TypeAlias = Tensor | Element | NDArray[Any] | Value


class AppendOnlyError(UnsupportedError):
    """The body of a Loop does more to a sequence that the loop grows than append to it."""

    def __init__(self, owner: object, op: str, appended: Sequence[Kind] = ()) -> None:
        super().__init__(
            f"{op} reads a sequence that a Loop of an unknown number of steps grows",
            expected="a sequence that has elements when the Loop begins, or to which the body appends before it reads",
            hint="fix the number of steps, or say it where it is an input: input_values={name: value}",
        )
        self.owner = owner
        #: dtype and shape of what the body had appended so far.
        self.appended = list(appended)


def is_list(value: object) -> TypeGuard[List]:
    """Whether it is a sequence that may be read."""
    return isinstance(value, (KnownSequence, StackedSequence, RaggedSequence))


def kind(value: Given) -> str:
    """In words, for errors."""
    if isinstance(value, KnownSequence):
        return f"a sequence of {len(value.elements)} tensors"
    if isinstance(value, AppendedTensor):
        return "a tensor that a Loop makes longer"
    if isinstance(value, (StackedSequence, RaggedSequence, AppendedSequence)):
        return "a sequence"
    return "an optional value without an element" if isinstance(value, EmptyOptional) else "a tensor"


def form(value: Given) -> tuple[str, int]:
    """What two values have in common that the same number of tensors, in the same roles, stand for."""
    if isinstance(value, KnownSequence):
        return "list", len(value.elements)
    if isinstance(value, StackedSequence):
        return "stack", 1
    if isinstance(value, RaggedSequence):
        return f"side by side along axis {value.axis}", 2
    if isinstance(value, AppendedSequence):
        return "appended", 0
    return ("none", 0) if isinstance(value, EmptyOptional) else ("tensor", 1)


def rebuilt(like: Given, tensors: Iterator[Tensor]) -> Given:
    """A value of the form of another one, of other tensors."""
    if isinstance(like, KnownSequence):
        return KnownSequence(tuple(Element(next(tensors)) for _ in like.elements))
    if isinstance(like, StackedSequence):
        return StackedSequence(next(tensors))
    if isinstance(like, RaggedSequence):
        return RaggedSequence(next(tensors), next(tensors), like.axis)
    return like if isinstance(like, EmptyOptional) else next(tensors)


class Ports(NamedTuple):
    """Inputs of a graph inside of a node that stand for one value together."""

    #: A value of the same form.
    like: Given
    #: dtype and shape of each.
    ports: Sequence[tuple[Any, Sequence[int | str]]]
