"""OnnxParser: reads ONNX models into a network, and says what it can't read."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurenix.errors import Error, InvalidArgumentError
from neurenix.hardware.tensorrt.adopt import adopt
from neurenix.hardware.tensorrt.build_enums import ErrorCode, OnnxParserFlag
from neurenix.hardware.tensorrt.layer import ITensor
from neurenix.hardware.tensorrt.layers import INetworkDefinition
from neurenix.hardware.tensorrt.logger import checked, report
from neurenix.hardware.tensorrt.scoped import Scoped
from neurenix.hardware.tensorrt.strict import Strict

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


class OnnxParser(Scoped):
    """Reads ONNX models into an empty network.

    `parse` and its kin give False where a model can't be read, after the whole error went to the logger; `get_error`
    and `trt.last_error()` have it.
    """

    flags: int

    def __init__(self, network: INetworkDefinition, logger: Any = None) -> None:
        if not isinstance(network, INetworkDefinition):
            raise InvalidArgumentError("a network is expected", got=type(network).__name__)
        self._network = network
        self._logger = checked(logger)
        self._errors: list[ParserError] = []
        self._subgraphs: list[tuple[list[int], bool]] = []
        self._model: tuple[bytes, str | None] | None = None
        self.flags = 1 << int(OnnxParserFlag.NATIVE_INSTANCENORM)

    def parse(self, model: Any, path: str | os.PathLike[str] | None = None) -> bool:
        """Reads the bytes of a model; `path` is where it lies, for weights in files beside it (the working directory
        without it)."""
        return self._read(bytes(model) if not isinstance(model, bytes) else model, path)

    def parse_from_file(self, model: str | os.PathLike[str]) -> bool:
        """Reads a file."""
        return self._read(Path(model), None)

    #: TensorRT before 10 had a parser of its own for models whose weights come later.
    parse_with_weight_descriptors = parse

    def load_model_proto(self, model: Any, path: str | os.PathLike[str] | None = None) -> bool:
        """Keeps the bytes of a model for `parse_model_proto`."""
        self._model = (bytes(model), None if path is None else os.fspath(path))
        return True

    def parse_model_proto(self) -> bool:
        """Reads the model that `load_model_proto` kept; False, after logging that, where there is none."""
        if self._model is None:
            self._fail(InvalidArgumentError("no model was loaded", hint="call load_model_proto first"), None)
            return False
        return self._read(*self._model)

    def _read(self, model: bytes | Path, path: str | os.PathLike[str] | None) -> bool:
        proto = None
        try:
            if self._network.num_layers or self._network.num_inputs:
                raise InvalidArgumentError(
                    "the network has layers or inputs already", hint="create a network of its own"
                )
            proto, folder = _load(model, path)
            from neurenix.importers.onnx.graph import import_graph

            graph = import_graph(proto, folder, {}, keeps_names=True)
            adopt(self._network, graph.network, {tensor: name for name, tensor in graph.tensors.items()})
        except Error as error:
            self._fail(error, proto)
            return False
        return True

    def _fail(self, error: Error, proto: onnx.ModelProto | None) -> None:
        self._errors.append(_located(error, proto))
        report(self._logger, error)

    def supports_model(
        self, model: Any, path: str | os.PathLike[str] | None = None
    ) -> tuple[bool, list[tuple[list[int], bool]]]:
        """Whether a model can be read, and its nodes in pieces, each with whether its ops are known."""
        try:
            proto, folder = _load(bytes(model), path)
            from neurenix.importers.onnx.graph import import_model

            self._subgraphs = list(_pieces(proto))
            import_model(proto, folder, {})
        except Error as error:
            self._fail(error, None)
            return False, self._subgraphs
        return True, self._subgraphs

    def supports_model_v2(self, model: Any, path: str | os.PathLike[str] | None = None) -> bool:
        """Whether a model can be read; `num_subgraphs` and its kin then tell of its pieces."""
        return self.supports_model(model, path)[0]

    @property
    def num_subgraphs(self) -> int:
        """Into how many pieces `supports_model` cut the model."""
        return len(self._subgraphs)

    def is_subgraph_supported(self, index: int) -> bool:
        """Whether the ops of a piece are known."""
        return self._subgraphs[index][1]

    def get_subgraph_nodes(self, index: int) -> list[int]:
        """The numbers of the nodes of a piece."""
        return self._subgraphs[index][0]

    def supports_operator(self, op_name: str) -> bool:
        """Whether an op of ONNX can be read."""
        from neurenix.importers.onnx import rules

        return rules.known("", op_name)

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

    def set_flag(self, flag: OnnxParserFlag) -> None:
        """Turns a switch on; none changes what is read."""
        self.flags |= 1 << int(flag)

    def clear_flag(self, flag: OnnxParserFlag) -> None:
        """Turns a switch off."""
        self.flags &= ~(1 << int(flag))

    def get_flag(self, flag: OnnxParserFlag) -> bool:
        """Whether a switch is on."""
        return bool(self.flags >> int(flag) & 1)

    def set_builder_config(self, builder_config: Any) -> bool:
        """Takes note of a configuration, which reading a model does not depend on."""
        return True

    def get_used_vc_plugin_libraries(self) -> list[str]:
        """An empty list: plugins are those that are registered."""
        return []

    def get_layer_output_tensor(self, name: str, i: int) -> ITensor | None:
        """An output of the layer of a name; None where there is none."""
        layer = next((layer for layer in self._network if layer.name == name), None)
        return None if layer is None else layer.get_output(i)


def _load(model: bytes | Path, path: str | os.PathLike[str] | None) -> tuple[onnx.ModelProto, Path | None]:
    from neurenix.importers.onnx import NEED, read_model
    from neurenix.packages import need

    need(*NEED)
    proto, folder = read_model(model)
    # As TensorRT does: weights beside bytes without a path are looked for in the working directory.
    return proto, (folder or Path.cwd()) if path is None else Path(path).parent


def _located(error: Error, proto: onnx.ModelProto | None) -> ParserError:
    """The error with the node that its layer names."""
    name = (error.layer or "").rpartition(" (")[0] or (error.layer or "")
    for index, node in enumerate(proto.graph.node if proto is not None else ()):
        if node.name and node.name == name:
            return ParserError(error, index, node.name, node.op_type)
    return ParserError(error, -1, name, (error.layer or "").rpartition(" (")[2].rstrip(")"))


def _pieces(proto: onnx.ModelProto) -> Iterator[tuple[list[int], bool]]:
    """Runs of nodes whose ops are known, and of nodes whose ops are not."""
    from neurenix.importers.onnx import check, rules

    functions = {(check.own_domain(f.domain), f.name) for f in proto.functions}
    piece: list[int] = []
    before = True
    for index, node in enumerate(proto.graph.node):
        domain = check.own_domain(node.domain)
        known = rules.known(domain, node.op_type) or (domain, node.op_type) in functions
        if piece and known != before:
            yield piece, before
            piece = []
        piece.append(index)
        before = known
    if piece:
        yield piece, before


class OnnxParserRefitter(Strict):
    """Gives the weights of an ONNX model to a `Refitter`, by their names."""

    def __init__(self, refitter: Any, logger: Any = None) -> None:
        self._refitter = refitter
        self._logger = checked(logger)
        self._errors: list[ParserError] = []

    def refit_from_bytes(self, model: Any, path: str | os.PathLike[str] | None = None) -> bool:
        """Reads the bytes of a model; False, after logging why, where it can't be read or its weights don't fit."""
        return self._refit(bytes(model), path)

    def refit_from_file(self, path: str | os.PathLike[str]) -> bool:
        """Reads a file."""
        return self._refit(Path(path), None)

    def _refit(self, model: bytes | Path, path: str | os.PathLike[str] | None) -> bool:
        from neurenix.importers.onnx.weights import Weights

        try:
            proto, folder = _load(model, path)
            reader = Weights(folder)
            wanted = set(self._refitter.get_all_weights())
            given = {w.name: reader.read(w) for w in proto.graph.initializer if w.name in wanted}
        except Error as error:
            self._errors.append(_located(error, None))
            report(self._logger, error)
            return False
        return all(self._refitter.set_named_weights(name, array) for name, array in given.items())

    @property
    def num_errors(self) -> int:
        """How many models were not read."""
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        """An error."""
        return self._errors[index]

    def clear_errors(self) -> None:
        """Forgets all errors."""
        self._errors.clear()


def get_nv_onnx_parser_version() -> int:
    """The parser's version, as TensorRT numbers it."""
    major, minor, patch = (int(part) for part in sys.modules[__package__].__version__.split(".")[:3])
    return major * 10000 + minor * 100 + patch
