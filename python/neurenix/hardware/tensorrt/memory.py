"""IHostMemory: a serialised engine in memory."""

from __future__ import annotations

from neurenix.hardware.tensorrt.enums import DataType
from neurenix.hardware.tensorrt.scoped import Scoped


class IHostMemory(bytes, Scoped):
    """Bytes in the processor's memory, which do all that bytes do; `with` gives them, as TensorRT's."""

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        return len(self)

    size = nbytes

    @property
    def dtype(self) -> DataType:
        """The type of an element."""
        return DataType.INT8
