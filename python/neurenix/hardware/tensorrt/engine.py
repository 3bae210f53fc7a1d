"""ICudaEngine and IExecutionContext: what a build gives, and what runs it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neurenix import _native, arrays
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.tensorrt.enums import DataType, Dims, TensorIOMode, as_data_type


class ICudaEngine:
    """A network made ready to run. Weights exist once, however many contexts there are."""

    def __init__(self, engine: _native.Engine) -> None:
        self._engine = engine
        self._ports = {
            name: (mode, dtype, shape)
            for mode, ports in ((TensorIOMode.INPUT, engine.inputs), (TensorIOMode.OUTPUT, engine.outputs))
            for name, dtype, shape in ports
        }

    @property
    def num_io_tensors(self) -> int:
        """How many inputs and outputs there are."""
        return len(self._ports)

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles it was built for."""
        return len(self._engine.profiles)

    def get_tensor_name(self, index: int) -> str:
        """The name of an input or output; inputs come first."""
        return list(self._ports)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        """Whether a tensor is an input, an output, or neither."""
        return self._ports[name][0] if name in self._ports else TensorIOMode.NONE

    def get_tensor_dtype(self, name: str) -> DataType | np.dtype[Any]:
        """The element type of an input or output."""
        return as_data_type(self._port(name)[1])

    def get_tensor_shape(self, name: str) -> Dims:
        """The shape of an input or output, -1 where it is dynamic."""
        return Dims(self._port(name)[2])

    def _port(self, name: str) -> tuple[TensorIOMode, np.dtype[Any], tuple[int | str, ...]]:
        if name not in self._ports:
            near = _native.nearest(name, list(self._ports))
            raise InvalidArgumentError(
                f"the engine has no tensor {name!r}",
                expected=", ".join(self._ports),
                hint=f"the nearest name is {near!r}",
            )
        return self._ports[name]

    def create_execution_context(self) -> IExecutionContext:
        """A context: the state of one call at a time."""
        return IExecutionContext(self)

    def serialize(self) -> bytes:
        """The engine as bytes, for `Runtime.deserialize_cuda_engine`."""
        return _through_file(lambda path: self._engine.save(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the engine to a file."""
        self._engine.save(os.fspath(path))


class IExecutionContext:
    """The state of one call at a time; use one per thread."""

    def __init__(self, engine: ICudaEngine) -> None:
        self.engine = engine
        self._context = engine._engine.create_context()

    def execute(self, *inputs: Any) -> Any:
        """Runs on one array per input, in order, or on a dict.

        Arrays give the output (a tuple where there are several), a dict gives a dict. Raises `DTypeError` and
        `ShapeError`, with what was expected, for an array that does not fit.
        """
        names = [name for name, _, _ in self.engine._engine.inputs]
        is_dict = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        if not is_dict and len(inputs) != len(names):
            raise InvalidArgumentError(
                "the number of arrays differs from that of the inputs", expected=", ".join(names), got=str(len(inputs))
            )
        given = dict(inputs[0]) if is_dict else dict(zip(names, inputs, strict=True))
        kind = next(iter(given.values()), None)
        outputs = {name: arrays.like(array, kind) for name, array in self._context.run(given).items()}
        if is_dict:
            return outputs
        return next(iter(outputs.values())) if len(outputs) == 1 else tuple(outputs.values())


class Runtime:
    """Opens serialised engines."""

    def __init__(self, logger: Any = None) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, serialized: bytes | bytearray | memoryview) -> ICudaEngine:
        """Opens an engine from bytes; nothing in them is executed.

        Raises `FormatError` when they are damaged, newer, or no engine.
        """
        from neurenix.hardware import get_backend

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "engine"
            path.write_bytes(serialized)
            return get_backend().load(path).engine


def _through_file(save: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine"
        save(str(path))
        return path.read_bytes()
