"""Changes to a network that are made together."""

from __future__ import annotations

import zlib

import numpy as np

from neurenix._native import Layer, Network, Tensor
from neurenix.arrays import Array


class Edits:
    """Tensors that layers of a network shall read in the place of others."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._inputs: dict[tuple[str, int], Tensor] = {}
        self._outputs: list[tuple[str, Tensor]] = []
        self._digest = 0

    def __bool__(self) -> bool:
        return bool(self._inputs or self._outputs)

    def read(self, layer: Layer, index: int) -> Tensor:
        """What a layer will read."""
        found = self._inputs.get((layer.name, index)) or layer.inputs[index]
        assert found is not None
        return found

    def constant(self, name: str, array: Array) -> Tensor:
        """A constant."""
        self._digest = zlib.crc32(np.ascontiguousarray(array).tobytes(), self._digest)
        return self.network.add_constant(name, np.asarray(array, order="C"))

    def let_read(self, layer: Layer, index: int, tensor: Tensor) -> None:
        """A layer will read another tensor."""
        self._inputs[(layer.name, index)] = tensor

    def multiply(self, layer: Layer, index: int, factors: Array, why: str) -> None:
        """A layer will read a tensor times factors. Of a constant that is one again, which other weights replay."""
        name = f"{layer.name}.{why}"
        by = self.constant(f"{name}.factors", factors.astype(np.float32))
        self.let_read(layer, index, self.network.add_layer("Mul", [self.read(layer, index), by], {}, name)[0])

    def replace_result(self, name: str, tensor: Tensor) -> None:
        """A result will be another tensor."""
        self._outputs.append((name, tensor))

    def digest(self) -> str:
        """Eight digits that tell these changes from others."""
        return f"{self._digest:08x}"

    def applied(self) -> Network:
        """The network with the changes."""
        inputs = [(layer, index, tensor) for (layer, index), tensor in self._inputs.items()]
        return self.network.rewired(inputs, self._outputs)
