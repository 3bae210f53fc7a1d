"""What scripts write `with` before."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from neurenix.hardware.tensorrt.strict import Strict

Self = TypeVar("Self", bound="Scoped")


class Scoped(Strict):
    """`with` gives the object, as TensorRT's; it goes when nobody holds it."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves everything as it is."""
