"""Inputs and outputs of an engine, and the shapes that its profiles allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from neurenix import _native
from neurenix import names as naming
from neurenix.errors import InvalidArgumentError, ShapeError
from neurenix.hardware.tensorrt.build_enums import TensorIOMode
from neurenix.hardware.tensorrt.enums import Dims

#: From the name of a symbol to its least, expected and greatest value.
Ranges = Mapping[str, tuple[int, int, int]]


#: The range of a symbol that no profile tells of.
ANY = (0, 1, 2**31 - 1)


class Port(NamedTuple):
    """An input or output: its dtype, and its shape of integers and expressions."""

    name: str
    mode: TensorIOMode
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]

    def ranges(self, profile: Ranges) -> list[tuple[int, int, int]]:
        """The least, expected and greatest extent of each dimension; -1 where only a call tells."""
        return [_range(dim, profile) for dim in self.shape]

    def profile_shapes(self, profile: Ranges) -> list[Dims]:
        """The least, expected and greatest shape."""
        return [Dims(dims) for dims in zip(*self.ranges(profile), strict=True)] if self.shape else [Dims()] * 3

    def check(self, shape: Sequence[Any], profile: Ranges, number: int) -> Dims:
        """A shape for a call.

        Raises `ShapeError` where it has another number of dimensions, or does not lie in the profile of this number.
        """
        dims = tuple(shape)
        if not all(isinstance(d, (int, np.integer)) and d >= 0 for d in dims) or len(dims) != len(self.shape):
            raise ShapeError(
                "this is no shape for the input", tensor=self.name, expected=_text(self.shape), got=_text(dims)
            )
        for axis, (dim, (low, _, high)) in enumerate(zip(dims, self.ranges(profile), strict=True)):
            if low >= 0 and not low <= dim <= high:
                raise ShapeError(
                    f"dimension {axis} of the input lies outside of profile {number}",
                    tensor=self.name,
                    expected=str(low) if low == high else f"{low} to {high}",
                    got=_text(dims),
                    hint="choose another profile with set_optimization_profile_async, or build with a wider one"
                    if low != high
                    else None,
                )
        return Dims(int(d) for d in dims)


def _range(dim: int | str, profile: Ranges) -> tuple[int, int, int]:
    if isinstance(dim, int):
        return dim, dim, dim
    return profile.get(dim.strip("'"), (-1, -1, -1))


def _text(dims: Sequence[Any]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


def ports_of(engine: _native.Engine) -> dict[str, Port]:
    """All inputs, then all outputs."""
    inputs = [Port(name, TensorIOMode.INPUT, np.dtype(dtype), shape) for name, dtype, shape in engine.inputs]
    outputs = [Port(name, TensorIOMode.OUTPUT, np.dtype(dtype), shape) for name, dtype, shape in engine.outputs]
    found: dict[str, Port] = {}
    for port in [*inputs, *outputs]:
        # An output may bear the name of an input; callers then mean the input.
        found.setdefault(port.name, port)
    return found


def profiles_of(engine: _native.Engine) -> list[Ranges]:
    """The profiles, of which there is at least one, as in TensorRT.

    Where sizes depend on data an engine lists those alone that it was asked for.
    """
    sizes = (dim.strip("'") for _, _, shape in engine.inputs for dim in shape if isinstance(dim, str))
    return list(engine.profiles) or [dict.fromkeys(sizes, ANY)]


def unknown(name: Any, names: Sequence[str]) -> InvalidArgumentError:
    """The error for a name that no input or output has."""
    return InvalidArgumentError(
        f"the engine has no tensor {name!r}", expected=", ".join(names), hint=naming.hint(name, names)
    )
