"""Reads models of ONNX, from bytes, files, or pieces, and keeps why one was not read."""

from __future__ import annotations

import ctypes
import math
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from neurenix import names
from neurenix.addresses import is_readable
from neurenix.errors import Error, InvalidArgumentError
from neurenix.hardware.tensorrt.build_enums import ErrorCode
from neurenix.hardware.tensorrt.logger import checked, report
from neurenix.hardware.tensorrt.scoped import Scoped

if TYPE_CHECKING:
    import onnx

_CODES = {
    "format": ErrorCode.MODEL_DESERIALIZE_FAILED,
    "io": ErrorCode.MODEL_DESERIALIZE_FAILED,
    "memory": ErrorCode.MEM_ALLOC_FAILED,
    "unsupported": ErrorCode.UNSUPPORTED_NODE,
    "shape": ErrorCode.INVALID_NODE,
    "type": ErrorCode.UNSUPPORTED_NODE_DATATYPE,
    "invalid_argument": ErrorCode.INVALID_VALUE,
}


class ParserError:
    """Why a model was not read. Every part is a method, as TensorRT has it; `str()` is the whole error."""

    def __init__(self, error: Error, node: int, name: str, operator: str) -> None:
        self._error = error
        self._node, self._name, self._operator = node, name, operator
        frames = traceback.extract_tb(error.__traceback__)
        self._frame = frames[-1] if frames else None

    def code(self) -> ErrorCode:
        """The kind of error."""
        return _CODES.get(self._error.kind, ErrorCode.INTERNAL_ERROR)

    def desc(self) -> str:
        """What is wrong, with what was expected, what came, and the way out."""
        return str(self._error)

    def file(self) -> str:
        """The file of our source that found it."""
        return self._frame.filename if self._frame else ""

    def line(self) -> int:
        """Its line."""
        return (self._frame.lineno or 0) if self._frame else 0

    def func(self) -> str:
        """Its function."""
        return self._frame.name if self._frame else ""

    def node(self) -> int:
        """The number of the node in the model; -1 where no single one is to blame."""
        return self._node

    def node_name(self) -> str:
        """The name of the node."""
        return self._name

    def node_operator(self) -> str:
        """The op of the node."""
        return self._operator

    def local_function_stack(self) -> list[str]:
        """The functions of the model around the node; they are written out before, and stand in its name."""
        return []

    def local_function_stack_size(self) -> int:
        """How many those are."""
        return 0

    def __str__(self) -> str:
        return self.desc()

    __repr__ = __str__


class Model(NamedTuple):
    """A model, and the folder of the weights that lie beside it."""

    proto: onnx.ModelProto
    folder: Path | None


class ModelReader(Scoped):
    """What reads models: their pieces, and the errors of those that were not read."""

    def __init__(self, logger: Any) -> None:
        self._logger = checked(logger)
        self._errors: list[ParserError] = []
        self._model: Model | None = None

    def load_model_proto(self, model: Any, path: str | os.PathLike[str] | None = None) -> bool:
        """Keeps the bytes of a model, to be read when its weights were told; False, after logging why, for others."""
        self._model = self._loaded(bytes(model), path)
        return self._model is not None

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        """Takes the weight of a name from `size` bytes at an address of the processor's memory, instead of from a file.

        False, after logging why, where the model that `load_model_proto` kept has no such weight, or one of another
        size.
        """
        model = self._kept()
        if model is None:
            return False
        try:
            _put(model.proto, name, data, size)
        except Error as error:
            self._fail(error, None)
            return False
        return True

    def _kept(self) -> Model | None:
        if self._model is None:
            self._fail(InvalidArgumentError("no model was loaded", hint="call load_model_proto first"), None)
        return self._model

    def _loaded(self, model: bytes | Path, path: str | os.PathLike[str] | None) -> Model | None:
        try:
            return load(model, path)
        except Error as error:
            self._fail(error, None)
            return None

    def _fail(self, error: Error, proto: onnx.ModelProto | None) -> None:
        self._errors.append(_located(error, proto))
        report(self._logger, error)

    @property
    def num_errors(self) -> int:
        """How many models were not read."""
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        """An error. Raises `InvalidArgumentError` where there is none of this number."""
        if not 0 <= index < len(self._errors):
            raise InvalidArgumentError("there is no error of this number", expected=f"0 to {len(self._errors) - 1}",
                                       got=str(index))  # fmt: skip
        return self._errors[index]

    def clear_errors(self) -> None:
        """Forgets all errors."""
        self._errors.clear()


def load(model: bytes | Path, path: str | os.PathLike[str] | None) -> Model:
    """A model of bytes or of a file; `path` is where its weights lie beside."""
    from neurenix.importers.onnx import NEED, read_model
    from neurenix.packages import need

    need(*NEED)
    proto, folder = read_model(model)
    # As TensorRT does: weights beside bytes without a path are looked for in the working directory.
    return Model(proto, (folder or Path.cwd()) if path is None else Path(path).parent)


def _located(error: Error, proto: onnx.ModelProto | None) -> ParserError:
    """The error with the node that its layer names."""
    name = (error.layer or "").rpartition(" (")[0] or (error.layer or "")
    for index, node in enumerate(proto.graph.node if proto is not None else ()):
        if node.name and node.name == name:
            return ParserError(error, index, node.name, node.op_type)
    return ParserError(error, -1, name, (error.layer or "").rpartition(" (")[2].rstrip(")"))


def _put(proto: onnx.ModelProto, name: str, address: int, size: int) -> None:
    """Gives a weight of a model its bytes."""
    from neurenix.importers.onnx.weights import PACKED, dtype_of

    known = {weight.name: weight for weight in proto.graph.initializer}
    if name not in known:
        raise InvalidArgumentError(f"the model has no weight {name!r}", hint=names.hint(name, known))
    weight = known[name]
    bits = PACKED.get(weight.data_type, 8 * dtype_of(weight.data_type).itemsize)
    needed = (math.prod(weight.dims) * bits + 7) // 8
    if size != needed:
        raise InvalidArgumentError(
            "a weight has another size", tensor=name, expected=f"{needed} bytes", got=f"{size} bytes"
        )
    if not is_readable(address, address + size):
        raise InvalidArgumentError(
            "the address of a weight is one that the processor can't read", tensor=name, got=f"{address:#x}"
        )
    for field in ("external_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        weight.ClearField(field)
    weight.data_location = weight.DEFAULT
    weight.raw_data = ctypes.string_at(address, size)
