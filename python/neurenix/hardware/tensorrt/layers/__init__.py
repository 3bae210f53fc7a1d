"""INetworkDefinition: all layers of the network API, with TensorRT's names and arguments.

Each method says what the layer reads, what its properties are at first, and which of our ops it becomes; one family of
layers is one file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.build_enums import NetworkDefinitionCreationFlag
from neurenix.hardware.tensorrt.interfaces import IErrorRecorder
from neurenix.hardware.tensorrt.layers.algebra import AlgebraLayers
from neurenix.hardware.tensorrt.layers.control import ControlLayers
from neurenix.hardware.tensorrt.layers.convolution import ConvolutionLayers
from neurenix.hardware.tensorrt.layers.indexing import IndexingLayers
from neurenix.hardware.tensorrt.layers.other import OtherLayers
from neurenix.hardware.tensorrt.layers.pointwise import PointwiseLayers
from neurenix.hardware.tensorrt.layers.quantization import QuantizationLayers
from neurenix.hardware.tensorrt.layers.shape import ShapeLayers
from neurenix.hardware.tensorrt.plugins.layers import PluginLayers
from neurenix.hardware.tensorrt.weights import Weights

if TYPE_CHECKING:
    from neurenix.hardware.tensorrt.builder import Builder

#: What a property that holds weights is to its layer, in the names of weights.
_ROLES = {"kernel": "weight", "bias": "bias", "shift": "shift", "scale": "scale", "power": "power", "weights": ""}


class INetworkDefinition(
    ConvolutionLayers,
    PointwiseLayers,
    AlgebraLayers,
    ShapeLayers,
    IndexingLayers,
    QuantizationLayers,
    ControlLayers,
    OtherLayers,
    PluginLayers,
):
    """A network in the making; a layer stands for its first output wherever a tensor is expected."""

    has_implicit_batch_dimension = False

    error_recorder: IErrorRecorder | None

    def __init__(self, name: str = "network", flags: int = 0, builder: Builder | None = None) -> None:
        super().__init__(name)
        self._flags = flags
        self._builder = builder
        self.error_recorder = None

    @property
    def flags(self) -> int:
        """The flags that it was created with, as bits."""
        return self._flags

    def get_flag(self, flag: NetworkDefinitionCreationFlag) -> bool:
        """Whether it was created with a flag."""
        return bool(self._flags >> int(flag) & 1)

    @property
    def builder(self) -> Builder | None:
        """The builder that created it."""
        return self._builder

    def set_weights_name(self, weights: Any, name: str) -> bool:
        """Names weights that were given to a layer, for a `Refitter`.

        Raises `InvalidArgumentError` for an array that no layer has.
        """
        for layer in self._layers:
            for what, role in _ROLES.items():
                if _same(layer._properties.get(what), weights):
                    layer._weight_names[role] = str(name)
                    self._changed(layer)
                    return True
        raise InvalidArgumentError("no layer has these weights", tensor=name, hint="give the array that the layer got")

    def mark_weights_refittable(self, name: str) -> bool:
        """True: all weights can be replaced where BuilderFlag.REFIT is set."""
        return True

    def unmark_weights_refittable(self, name: str) -> bool:
        """False: all weights can be replaced where BuilderFlag.REFIT is set."""
        return False

    def are_weights_marked_refittable(self, name: str) -> bool:
        """True: all weights can be replaced where BuilderFlag.REFIT is set."""
        return True


def _same(mine: Any, given: Any) -> bool:
    """Whether these are the same weights: one object, or one memory."""
    mine, given = (value.array if isinstance(value, Weights) else value for value in (mine, given))
    if mine is None or mine is given:
        return mine is not None
    arrays = isinstance(mine, np.ndarray) and isinstance(given, np.ndarray)
    return bool(arrays and mine.ctypes.data == given.ctypes.data and mine.nbytes == given.nbytes)
