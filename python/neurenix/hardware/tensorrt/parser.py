"""OnnxParser: reads ONNX models into a network, and says what it can't read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurenix.errors import Error, InvalidArgumentError
from neurenix.hardware.tensorrt.adopt import adopt
from neurenix.hardware.tensorrt.build_enums import OnnxParserFlag
from neurenix.hardware.tensorrt.layer import ITensor
from neurenix.hardware.tensorrt.layers import INetworkDefinition
from neurenix.hardware.tensorrt.model_reader import Model, ModelReader, load

if TYPE_CHECKING:
    import onnx


class OnnxParser(ModelReader):
    """Reads ONNX models into an empty network.

    `parse` and its kin give False where a model can't be read, after the whole error went to the logger; `get_error`
    and `trt.last_error()` have it.
    """

    flags: int

    def __init__(self, network: INetworkDefinition, logger: Any = None) -> None:
        if not isinstance(network, INetworkDefinition):
            raise InvalidArgumentError("a network is expected", got=type(network).__name__)
        super().__init__(logger)
        self._network = network
        self._subgraphs: list[tuple[list[int], bool]] = []
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

    def parse_model_proto(self) -> bool:
        """Reads the model that `load_model_proto` kept; False, after logging that, where there is none."""
        model = self._kept()
        return model is not None and self._take(model)

    def _read(self, model: bytes | Path, path: str | os.PathLike[str] | None) -> bool:
        loaded = self._loaded(model, path)
        return loaded is not None and self._take(loaded)

    def _take(self, model: Model) -> bool:
        try:
            if self._network.num_layers or self._network.num_inputs:
                raise InvalidArgumentError(
                    "the network has layers or inputs already", hint="create a network of its own"
                )
            from neurenix.importers.onnx.graph import import_graph

            graph = import_graph(model.proto, model.folder, {}, keeps_names=True)
            adopt(self._network, graph.network, {tensor: name for name, tensor in graph.tensors.items()})
        except Error as error:
            self._fail(error, model.proto)
            return False
        return True

    def supports_model(
        self, model: Any, path: str | os.PathLike[str] | None = None
    ) -> tuple[bool, list[tuple[list[int], bool]]]:
        """Whether a model can be read, and its nodes in pieces, each with whether its ops are known."""
        try:
            proto, folder = load(bytes(model), path)
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


class OnnxParserRefitter(ModelReader):
    """Gives the weights of an ONNX model to a `Refitter`, by their names."""

    def __init__(self, refitter: Any, logger: Any = None) -> None:
        super().__init__(logger)
        self._refitter = refitter

    def refit_from_bytes(self, model: Any, path: str | os.PathLike[str] | None = None) -> bool:
        """Reads the bytes of a model; False, after logging why, where it can't be read or its weights don't fit."""
        return self._refit(bytes(model), path)

    def refit_from_file(self, path: str | os.PathLike[str]) -> bool:
        """Reads a file."""
        return self._refit(Path(path), None)

    def refit_model_proto(self) -> bool:
        """Reads the model that `load_model_proto` kept; False, after logging that, where there is none."""
        model = self._kept()
        return model is not None and self._give(model)

    def _refit(self, model: bytes | Path, path: str | os.PathLike[str] | None) -> bool:
        loaded = self._loaded(model, path)
        return loaded is not None and self._give(loaded)

    def _give(self, model: Model) -> bool:
        from neurenix.importers.onnx.weights import Weights

        try:
            reader = Weights(model.folder)
            wanted = set(self._refitter.get_all_weights())
            given = {w.name: reader.read(w) for w in model.proto.graph.initializer if w.name in wanted}
        except Error as error:
            self._fail(error, None)
            return False
        return all(self._refitter.set_named_weights(name, array) for name, array in given.items())


def get_nv_onnx_parser_version() -> int:
    """The parser's version, as TensorRT numbers it."""
    major, minor, patch = (int(part) for part in sys.modules[__package__].__version__.split(".")[:3])
    return major * 10000 + minor * 100 + patch
