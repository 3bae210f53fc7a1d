"""What a plugin is told of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.hardware.tensorrt.enums import DataType, Dims, Word, as_data_type


class TensorFormat(Word):
    """The order of elements; plugins meet LINEAR alone here."""

    LINEAR = 0
    CHW2 = 1
    HWC8 = 2
    CHW4 = 3
    CHW16 = 4
    CHW32 = 5
    DHWC8 = 6
    CDHW32 = 7
    HWC = 8
    DLA_LINEAR = 9
    DLA_HWC4 = 10
    HWC16 = 11
    DHWC = 12


class TensorRTPhase(Word):
    """Why a plugin is made."""

    BUILD = 0
    RUNTIME = 1


class PluginCapabilityType(Word):
    """The parts of an IPluginV3."""

    CORE = 0
    BUILD = 1
    RUNTIME = 2


class PluginTensorDesc:
    """A tensor: `dims` (-1 where only a call tells), `type` (`dtype` is numpy's), `format`, `scale`."""

    def __init__(self, dtype: np.dtype[Any], shape: Sequence[Any]) -> None:
        self.dims = Dims(shape)
        self.dtype = dtype
        self.type: DataType | np.dtype[Any] = as_data_type(dtype)
        self.format = TensorFormat.LINEAR
        self.scale = -1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(self.dims)

    def __repr__(self) -> str:
        return f"PluginTensorDesc({self.dtype}{list(self.dims)})"


class DynamicPluginTensorDesc:
    """A tensor with the least, expected and greatest shape that calls may bring."""

    def __init__(self, desc: PluginTensorDesc) -> None:
        self.desc = desc
        self.min = self.opt = self.max = desc.dims


#: dtype and shape of a tensor, and of one that calls bring its elements where the shapes determine them.
Shaped = tuple[np.dtype[Any], tuple[int, ...]]
Typed = tuple[np.dtype[Any], tuple[Any, ...], "tuple[Any, ...] | None"]


def describe(tensors: Sequence[Shaped | Typed]) -> list[PluginTensorDesc]:
    """What a plugin is told of some tensors."""
    return [PluginTensorDesc(np.dtype(tensor[0]), tensor[1]) for tensor in tensors]
