"""What a caller says of a model beside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neurenix.shapes import Shape, is_by_name, parse, profiles


@dataclass(frozen=True)
class Request:
    """See `from_tensorflow`; `hints` are shapes for `optimize_model`, which fix nothing that the model leaves open.

    `names` are those of the inputs of a Keras model that is not called as it calls them itself.
    """

    signature: str | None = None
    shapes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    inputs: Sequence[Any] | None = None
    outputs: Sequence[str] | None = None
    hints: Any = None
    names: Sequence[str] | None = None

    def ranges(self, names: Sequence[str]) -> dict[str, Shape]:
        """The hints by name; raises `InvalidArgumentError` for names that are not among these."""
        found: dict[str, Shape] = {}
        for profile in profiles(self.hints, names):
            found |= profile
        return found

    def known(self, names: Sequence[str]) -> dict[str, list[int | None]]:
        """What is said of shapes, by name: None for dimensions that stay open."""
        found = {name: [low if low == high else None for low, high in zip(r.min, r.max, strict=True)]
                 for name, r in self.ranges(names).items()}  # fmt: skip
        return found | {name: [_size(dim) for dim in dims] for name, dims in self.shapes.items()}

    def is_said(self) -> bool:
        """Whether there is a word about shapes."""
        return bool(self.shapes) or self.hints is not None

    def said_names(self) -> list[str]:
        """The names of the inputs whose shapes are said, in the order in which they are."""
        return list(dict.fromkeys([*self.shapes, *(name for hint in self._hints() for name in hint)]))

    def integers(self, name: str) -> str | None:
        """The dtype of the array of integers or booleans that is given for the shape of an input."""
        for array in (self.shapes.get(name), *(hint.get(name) for hint in self._hints())):
            dtype = getattr(array, "dtype", None)
            if dtype is not None and np.dtype(dtype).kind in "iub":
                return str(dtype)
        return None

    def _hints(self) -> list[Mapping[str, Any]]:
        several = self.hints if isinstance(self.hints, list) else [self.hints]
        each = [parse(one) if isinstance(one, str) else one for one in several]
        return [one for one in each if is_by_name(one)]


def _size(dim: Any) -> int | None:
    return dim if isinstance(dim, int) and dim >= 0 else None
