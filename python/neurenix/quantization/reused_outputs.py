"""Calls of an engine whose many large results are looked at once, and forgotten."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from neurenix import _native
from neurenix._native import Network, Tensor
from neurenix.arrays import Array


def channels_last(network: Network, tensor: Tensor) -> Tensor:
    """An image with its channels behind, as fast convolutions give it: who asks for no order needs no other.

    Other tensors are given as they are.
    """
    if len(tensor.shape) != 4:
        return tensor
    return network.add_layer("Transpose", [tensor], {"perm": [0, 2, 3, 1]})[0]


class ReusedOutputs:
    """An engine whose results lie in the memory of those before, in each thread: to get new memory of the system takes
    longer than to compute what goes there."""

    def __init__(self, engine: _native.Engine) -> None:
        self._engine = engine
        self._inputs = [(name, np.dtype(dtype)) for name, dtype, _ in engine.inputs]
        self._outputs = [name for name, *_ in engine.outputs]
        self._of_thread = threading.local()

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        """The results by name, which hold until the thread's next call. Inputs have the engine's dtypes."""
        given = [np.asarray(batch[name], dtype, order="C") for name, dtype in self._inputs]
        shapes = [list(array.shape) for array in given]
        results = self._buffers(shapes)
        self._engine.run_at(
            [(array.ctypes.data, None) for array in given],
            shapes,
            [(array.ctypes.data, None) for array in results],
            None,
        )
        return dict(zip(self._outputs, results, strict=True))

    def _buffers(self, shapes: list[list[int]]) -> list[Array]:
        known: tuple[Any, list[Array]] = getattr(self._of_thread, "buffers", (None, []))
        if known[0] != shapes:
            known = shapes, [np.empty(shape, dtype) for dtype, shape in self._engine.specs(shapes)]
            self._of_thread.buffers = known
        return known[1]
