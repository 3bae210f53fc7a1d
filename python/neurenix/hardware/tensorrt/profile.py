"""IOptimizationProfile: the shapes that an engine is for."""

from __future__ import annotations

from collections.abc import Sequence

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.enums import Dims
from neurenix.hardware.tensorrt.strict import Strict
from neurenix.shapes import Shape


class IOptimizationProfile(Strict):
    """The shapes to optimise for."""

    def __init__(self) -> None:
        self._shapes: dict[str, Shape] = {}
        self._values: dict[str, tuple[list[int], list[int], list[int]]] = {}
        self._extra = 1.0

    def set_shape(self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> None:
        """The least, expected and greatest shape of an input. Raises `ShapeError` unless min <= opt <= max."""
        self._shapes[input] = Shape(min, opt, max)  # type: ignore[arg-type]

    def get_shape(self, input: str) -> list[Dims]:
        """The three shapes of an input, or an empty list."""
        shape = self._shapes.get(input)
        return [Dims(shape.min), Dims(shape.opt), Dims(shape.max)] if shape else []

    def set_shape_input(self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> None:
        """The least, expected and greatest elements of an input that tells shapes.

        They are kept and need nothing: what elements tell is known when a call comes.
        """
        if not all(a <= b <= c for a, b, c in zip(min, opt, max, strict=True)):
            raise InvalidArgumentError(
                "the range of an input is not ordered", tensor=input, expected="min <= opt <= max",
                got=f"{list(min)}, {list(opt)}, {list(max)}",
            )  # fmt: skip
        self._values[input] = (list(min), list(opt), list(max))

    def get_shape_input(self, input: str) -> list[list[int]]:
        """The three lists of elements of an input, or an empty list."""
        return list(self._values.get(input, ()))

    @property
    def extra_memory_target(self) -> float:
        """How much more memory it may take than the first one, 0 to 1; memory is shared by all profiles here."""
        return self._extra

    @extra_memory_target.setter
    def extra_memory_target(self, target: float) -> None:
        if not 0 <= target <= 1:
            raise InvalidArgumentError("the target is a share", expected="0 to 1", got=str(target))
        self._extra = float(target)

    def __bool__(self) -> bool:
        return bool(self._shapes or self._values)
