"""Adds layers to a network under names of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix._native import Network, Tensor


class Adder:
    """Adds layers whose names begin with `prefix`."""

    def __init__(self, network: Network, prefix: str) -> None:
        self._network, self._prefix, self._count = network, prefix, 0

    def add(self, op: str, *inputs: Tensor | None, **attrs: Any) -> Tensor:
        """The first output of a layer of this op."""
        self._count += 1
        name = f"{self._prefix}/{op.lower()}_{self._count}"
        return self._network.add_layer(op, list(inputs), attrs, name)[0]

    def constant(self, values: Any, dtype: Any) -> Tensor:
        """A constant."""
        self._count += 1
        return self._network.add_constant(f"{self._prefix}/{self._count}", np.asarray(values, dtype))

    def between(self, tensor: Tensor, begin: int, end: int, axis: int) -> Tensor:
        """A slice along an axis; an `end` of 2^31 - 1 is that of the axis."""
        places = [self.constant([value], np.int64) for value in (begin, end, axis)]
        return self.add("Slice", tensor, *places)

    def plugin(self, name: str, inputs: Sequence[Tensor], **fields: Any) -> list[Tensor]:
        """The outputs of a plugin of version 1 that comes with the package."""
        from neurenix.hardware.tensorrt.layer import Scope
        from neurenix.hardware.tensorrt.plugins.composed import add_registered
        from neurenix.hardware.tensorrt.plugins.fields import pack_all

        scope = Scope(self._network, f"{self._prefix}/{name.lower()}", list(inputs))
        return add_registered(scope, inputs, (name, "1", ""), pack_all(fields))
