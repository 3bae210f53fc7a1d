"""Shapes of inputs as users write them: tuples, ranges, several profiles, trtexec's strings."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from neurenix import names as naming
from neurenix.errors import InvalidArgumentError, ShapeError

Dims = tuple[int, ...]

#: No dimension has so many elements.
LIMIT = 1 << 63


@dataclass(frozen=True)
class Shape:
    """The least, expected and greatest shape of an input; `opt` is where the speed is wanted.

    Raises `ShapeError` unless all three have as many dimensions and 0 <= min <= opt <= max in each, below 2**63.
    """

    min: Dims
    opt: Dims
    max: Dims

    def __post_init__(self) -> None:
        for name in ("min", "opt", "max"):
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, _dims(given))
            except TypeError as error:
                raise ShapeError(f"{name} is no shape", expected="integers", got=repr(given)) from error
        if any(size >= LIMIT for size in self.max):
            raise ShapeError("a dimension is too large", expected=f"less than {LIMIT}", got=str(self.max))
        ordered = all(0 <= a <= b <= c for a, b, c in zip(self.min, self.opt, self.max, strict=False))
        if not ordered or len({len(self.min), len(self.opt), len(self.max)}) != 1:
            raise ShapeError(
                "the range of a shape is not ordered",
                expected="0 <= min <= opt <= max in each of as many dimensions",
                got=f"min {self.min}, opt {self.opt}, max {self.max}",
            )

    @classmethod
    def fixed(cls, dims: Iterable[int]) -> Shape:
        """A shape without a range."""
        dims = tuple(dims)
        return cls(dims, dims, dims)

    @property
    def is_fixed(self) -> bool:
        """Whether least and greatest are the same."""
        return self.min == self.max


#: What users give: the shapes of all inputs.
InputShapes = Any

Profile = dict[str, Shape]


def profiles(given: InputShapes, names: Sequence[str]) -> list[Profile]:
    """The profiles that `given` describes, for inputs of these names.

    `given` maps names to shapes, or is a list of such mappings (one profile each), or trtexec's text
    ("input:1x3x224x224"); a model with one input takes the shape alone. A shape is a tuple of integers, a `Shape`,
    three tuples (min, opt, max), a mapping with these words, or an array, whose shape is taken.

    Raises `InvalidArgumentError` for an unknown name and `ShapeError` for what is no shape.
    """
    if given is None:
        return []
    if isinstance(given, str):
        given = parse(given)
    several = isinstance(given, list) and any(isinstance(one, (Mapping, str)) for one in given)
    each = given if several else [given]
    return [_profile(parse(one) if isinstance(one, str) else one, names) for one in each]


def is_by_name(given: InputShapes) -> TypeGuard[Mapping[str, Any]]:
    """Whether these are shapes by the names of inputs, and not one shape: a range by the words min, opt and max."""
    return isinstance(given, Mapping) and not set(given) <= {"min", "opt", "max"}


def _profile(given: Any, names: Sequence[str]) -> Profile:
    names_none = isinstance(given, Mapping) and not given
    if not names_none and not is_by_name(given):
        if len(names) != 1:
            raise InvalidArgumentError(
                "a shape without a name is for models with one input",
                expected=f"a dict with shapes for {', '.join(names)}",
                got=repr(given),
            )
        given = {names[0]: given}
    for name in given:
        if name not in names:
            raise InvalidArgumentError(
                f"the model has no input {name!r}", expected=", ".join(names), hint=naming.hint(name, names)
            )
    return {name: shape(value, name) for name, value in given.items()}


def shape(value: Any, name: str = "") -> Shape:
    """One shape as a user writes it.

    Raises `ShapeError` for what is no shape; it names the input `name`.
    """
    try:
        if isinstance(value, Shape):
            return value
        if isinstance(value, Mapping):
            return Shape(value["min"], value["opt"], value["max"])
        if hasattr(value, "shape"):
            return Shape.fixed(_dims(value.shape))
        items = list(value)
        if len(items) == 3 and all(isinstance(item, (tuple, list)) for item in items):
            return Shape(*(_dims(item) for item in items))
        return Shape.fixed(_dims(items))
    except ShapeError as error:
        error.tensor = error.tensor or name or None
        raise
    except (TypeError, KeyError) as error:
        raise ShapeError(
            "this is no shape",
            tensor=name or None,
            expected="integers, a Shape(min=..., opt=..., max=...), or three tuples (min, opt, max)",
            got=repr(value),
        ) from error


def _dims(value: Iterable[Any]) -> Dims:
    dims = tuple(operator.index(d) for d in value)
    if any(d < 0 for d in dims):
        raise ShapeError(
            "a dimension is negative",
            got=str(dims),
            hint="for a dynamic dimension say its range: Shape(min=..., opt=..., max=...)",
        )
    return dims


def sized(shape: Sequence[int | str], sizes: Mapping[str, int]) -> list[int]:
    """The extents of a tensor's shape where its symbols have these sizes; 1 of those that have none."""
    return [extent if isinstance(extent, int) else sizes.get(extent.strip("'"), 1) for extent in shape]


def union(given: InputShapes) -> InputShapes:
    """One mapping whose ranges hold those of all profiles; what is no list of several is given back.

    The expected shapes are those of the first.
    """
    if not (isinstance(given, list) and given and all(isinstance(one, Mapping) for one in given)):
        return given
    if len(given) == 1:
        return given[0]
    merged: dict[str, Any] = dict(given[0])
    for other in given[1:]:
        for name, value in other.items():
            first, more = shape(merged.get(name, value), name), shape(value, name)
            if len(first.opt) != len(more.opt):
                raise ShapeError(
                    "two profiles give an input another number of dimensions",
                    tensor=name,
                    expected=str(first.opt),
                    got=str(more.opt),
                )
            low = tuple(map(min, first.min, more.min))
            merged[name] = Shape(low, first.opt, tuple(map(max, first.max, more.max)))
    return merged


def parse(text: str) -> dict[str, Dims]:
    """trtexec's text: "input:1x3x224x224,mask:1x128"; "name:scalar" has no dimensions; a name with a colon is quoted.

    Raises `ShapeError` for what can't be read.
    """
    shapes: dict[str, Dims] = {}
    for part in text.split(","):
        name, colon, dims = part.strip().rpartition(":")
        quoted = len(name) > 1 and name[0] == name[-1] == "'"
        digits = [] if dims in ("", "scalar") else dims.split("x")
        if not colon or not name or not all(d.isdecimal() for d in digits):
            raise ShapeError("the shapes can't be read", expected="name:1x3x224x224,name2:1x128", got=repr(text))
        shapes[name[1:-1] if quoted else name] = tuple(int(d) for d in digits)
    return shapes
