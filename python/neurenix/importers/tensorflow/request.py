"""What a caller says of a model beside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neurenix.shapes import Shape, profiles


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


def _size(dim: Any) -> int | None:
    return dim if isinstance(dim, int) and dim >= 0 else None
