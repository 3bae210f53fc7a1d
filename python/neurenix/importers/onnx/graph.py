"""Walks an ONNX graph and adds its nodes to a Network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from neurenix import _native
from neurenix._native import Network, Tensor
from neurenix.errors import Error, FileError, FormatError, InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx import rules
from neurenix.importers.onnx.convert import converted
from neurenix.importers.onnx.node import Array, Node

if TYPE_CHECKING:
    import onnx

#: ONNX's element types in numpy's words.
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
}
#: Of these, those of which several share a byte in a file.
PACKED = frozenset({21, 22, 23, 25, 26})


def dtype_of(number: int) -> np.dtype[Any]:
    """numpy's dtype for a number of `onnx.TensorProto.DataType`."""
    if number in DTYPES:
        return DTYPES[number]
    import onnx

    name = onnx.TensorProto.DataType.Name(number) if number in onnx.TensorProto.DataType.values() else str(number)
    raise UnsupportedError(
        f"the element type {name} is not supported", expected=", ".join(str(d) for d in DTYPES.values())
    )


def import_model(
    model: onnx.ModelProto,
    folder: Path | None,
    input_shapes: dict[str, Sequence[int | str]],
    names: Mapping[str, str] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
) -> Network:
    """The network of a model. `folder` is where external data lies, `names` says what to call inputs and outputs.

    `values` are the elements of inputs that become constants.
    """
    older, model = model, converted(model, folder)
    versions = {_domain(o.domain): o.version for o in model.opset_import}
    proto = _inlined(model)
    _check_known(proto, versions)
    graph = Graph(Network(proto.name or "onnx"), versions, folder, names or {})
    graph.was_converted = model is not older
    graph.add_initializers(model.graph.initializer)
    graph.add_values(proto.input, values or {})
    graph.add_inputs(proto.input, input_shapes)
    graph.add_nodes(proto.node)
    for output in proto.output:
        graph.network.mark_output(graph.tensor(output.name), graph.names.get(output.name, output.name))
    return graph.network


class Graph:
    """A network in the making, and what the names of the ONNX graph stand for so far."""

    def __init__(
        self, network: Network, versions: dict[str, int], folder: Path | None, names: Mapping[str, str]
    ) -> None:
        self.network = network
        self.names = names
        self.versions = versions
        self.folder = folder
        #: Whether ONNX's converter made the model out of one older than opset 7.
        self.was_converted = False
        self.constants: dict[str, Array] = {}
        self.tensors: dict[str, Tensor] = {}
        self.aliases: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def tensor(self, name: str) -> Tensor:
        """What a name stands for; a constant enters the network when something first reads it."""
        name = self.aliases.get(name, name)
        if name not in self.tensors:
            if name not in self.constants:
                raise FormatError("a node reads a tensor that nothing gives", tensor=name)
            self.tensors[name] = self.network.add_constant(name, self.constants[name], copy=False)
        return self.tensors[name]

    def constant(self, name: str) -> Array | None:
        """The elements of a constant; None for what is computed."""
        return self.constants.get(self.aliases.get(name, name))

    def add_initializers(self, initializers: Sequence[onnx.TensorProto]) -> None:
        """Takes the weights."""
        for proto in initializers:
            self.constants[proto.name] = self.read(proto)

    def add_values(self, inputs: Sequence[onnx.ValueInfoProto], values: Mapping[str, ArrayLike]) -> None:
        """Takes inputs whose elements the caller knows: they are constants."""
        ports = {port.name: port.type.tensor_type for port in inputs}
        for name, value in values.items():
            if name not in ports:
                near = _nearest(name, list(ports))
                raise InvalidArgumentError(
                    f"the model has no input {name!r}, of which a value is given", expected=", ".join(ports), hint=near
                )
            self.constants[name] = _fitting(name, value, ports[name])

    def add_inputs(self, inputs: Sequence[onnx.ValueInfoProto], shapes: dict[str, Sequence[int | str]]) -> None:
        """Takes the inputs; older files list the weights among them."""
        wanted = [i for i in inputs if i.name not in self.constants]
        names = [i.name for i in wanted]
        for name in shapes:
            if name not in names:
                raise InvalidArgumentError(
                    f"the model has no input {name!r}", expected=", ".join(names), hint=_nearest(name, names)
                )
        for proto in wanted:
            self.add_input(proto, shapes.get(proto.name))

    def add_input(self, proto: onnx.ValueInfoProto, given: Sequence[int | str] | None) -> None:
        """Takes one input."""
        if not proto.type.HasField("tensor_type"):
            kind = proto.type.WhichOneof("value")
            raise UnsupportedError("an input is no tensor", tensor=proto.name, got=str(kind))
        info = proto.type.tensor_type
        if not info.HasField("shape") and given is None:
            raise UnsupportedError(
                "the model does not say how many dimensions an input has",
                tensor=proto.name,
                hint=f"say it: input_shapes={{{proto.name!r}: ('batch', 3, 224, 224)}}",
            )
        dims = [_dim(d, f"{proto.name}.{axis}") for axis, d in enumerate(info.shape.dim)]
        if given is not None:
            if info.HasField("shape") and len(given) != len(dims):
                raise InvalidArgumentError(
                    "the given shape has another number of dimensions than the input",
                    tensor=proto.name,
                    expected=str(tuple(dims)),
                    got=str(tuple(given)),
                )
            dims = [_named(d, f"{proto.name}.{axis}") for axis, d in enumerate(given)]
        name = self.names.get(proto.name, proto.name)
        self.tensors[proto.name] = self.network.add_input(name, dtype_of(info.elem_type), dims)

    def add_nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Adds nodes, which stand in an order in which each comes after those that it reads."""
        for proto in nodes:
            domain = _domain(proto.domain)
            node = Node(self, proto, self.name_of(proto), self.versions.get(domain, 1))
            try:
                self.add_node(node, rules.find(domain, proto.op_type))
            except Error as error:
                if error.layer is None:
                    error.layer = f"{node.name} ({node.op})"
                raise

    def add_node(self, node: Node, rule: rules.Rule) -> None:
        """Adds one node by its rule."""
        if rule is rules.CONSTANT:
            self.constants[node.outputs[0]] = self.constant_of(node)
            return
        if rule is rules.IDENTITY:
            source = node.proto.input[0]
            self.aliases[node.outputs[0]] = self.aliases.get(source, source)
            return
        given = rule(node)
        outputs = [given] if isinstance(given, Tensor) else list(given)
        for index, name in enumerate(node.outputs):
            if name == "":
                continue
            tensor = outputs[index] if index < len(outputs) else None
            if tensor is None:
                raise UnsupportedError(f"output {index} of {node.op} is not supported", tensor=name)
            self.tensors[name] = tensor

    def constant_of(self, node: Node) -> Array:
        """The array of a Constant node, however it is written."""
        for name, value in node.attrs.items():
            if name == "value":
                return self.read(value)
            if name in ("value_float", "value_floats"):
                return np.asarray(value, np.float32)
            if name in ("value_int", "value_ints"):
                return np.asarray(value, np.int64)
        raise UnsupportedError("a constant of this kind is not supported", got=", ".join(node.attrs) or "no value")

    def read(self, proto: onnx.TensorProto) -> Array:
        """The elements of a tensor, without a copy beyond the one that protobuf makes."""
        if proto.data_location == 1:
            self.load_external(proto)
        dtype, shape = dtype_of(proto.data_type), tuple(proto.dims)
        raw = proto.raw_data
        if not raw or proto.data_type in PACKED:
            from onnx.numpy_helper import to_array

            return np.asarray(to_array(proto)).astype(dtype, copy=False)
        if len(raw) != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
            raise FormatError(
                "a constant has another number of bytes than its shape says",
                tensor=proto.name,
                expected=f"{dtype}{list(shape)}",
                got=f"{len(raw)} bytes",
            )
        return np.frombuffer(raw, dtype).reshape(shape)

    def load_external(self, proto: onnx.TensorProto) -> None:
        """Brings in the bytes of a weight that lies in a file of its own."""
        from onnx.checker import ValidationError
        from onnx.external_data_helper import load_external_data_for_tensor

        if self.folder is None:
            raise FileError(
                "the weights of the model lie in another file",
                tensor=proto.name,
                hint="give the path of the model, or load it with onnx.load, which reads them too",
            )
        try:
            load_external_data_for_tensor(proto, str(self.folder))
        except (OSError, ValueError, ValidationError) as error:
            raise FileError(f"the weights of the model can't be read: {error}", tensor=proto.name) from error

    def name_of(self, proto: onnx.NodeProto) -> str:
        """The node's name; one without a name is called by its op and a number."""
        number = self.counts.get(proto.op_type, 0)
        self.counts[proto.op_type] = number + 1
        return proto.name or f"{proto.op_type}_{number}"


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _nearest(name: str, names: Sequence[str]) -> str | None:
    nearest = _native.nearest(name, list(names))
    return None if nearest is None else f"the nearest name is {nearest!r}"


def _fitting(name: str, value: ArrayLike, port: onnx.TypeProto.Tensor) -> Array:
    """A given value as the array that an input of this type takes."""
    array, dtype = np.asarray(value), dtype_of(port.elem_type)
    if not hasattr(value, "dtype") and (array.size == 0 or np.can_cast(array.dtype, dtype, "same_kind")):
        # A plain number or list has no dtype of its own.
        array = array.astype(dtype)
    dims = [_dim(dim, f"{name}.{axis}") for axis, dim in enumerate(port.shape.dim)]
    fits = len(dims) == array.ndim and all(isinstance(d, str) or d == n for d, n in zip(dims, array.shape, strict=True))
    if array.dtype != dtype or (port.HasField("shape") and not fits):
        raise InvalidArgumentError(
            "the given value does not fit the input",
            tensor=name,
            expected=f"{dtype}{dims if port.HasField('shape') else ''}",
            got=f"{array.dtype}{list(array.shape)}",
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _dim(proto: onnx.TensorShapeProto.Dimension, own: str) -> int | str:
    if proto.HasField("dim_value"):
        return _named(proto.dim_value, own)
    return _named(proto.dim_param, own)


def _named(dim: int | str, own: str) -> int | str:
    """A dimension as the Network has it; `own` names one that has no name."""
    if isinstance(dim, str):
        name = dim.strip().replace("'", "")
        return f"'{own}'" if name in ("", "?") else f"'{name}'"
    return int(dim) if dim >= 0 else f"'{own}'"


def _inlined(model: onnx.ModelProto) -> onnx.GraphProto:
    """The graph with the calls of the model's own functions replaced by their bodies."""
    import onnx
    from onnx.inliner import inline_local_functions

    if not model.functions:
        return model.graph
    light = onnx.ModelProto(ir_version=model.ir_version, functions=model.functions)
    light.opset_import.extend(model.opset_import)
    graph = model.graph
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.input.extend(graph.input)
    light.graph.output.extend(graph.output)
    for tensor in graph.initializer:
        # The inliner needs the name alone, so that it takes no name twice.
        light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=[0])
    return inline_local_functions(light, convert_version=True).graph


def _check_known(graph: onnx.GraphProto, versions: dict[str, int]) -> None:
    """Raises one error with all nodes that no rule knows."""
    unknown: dict[str, list[str]] = {}
    for node in _walk(graph):
        domain = _domain(node.domain)
        if not rules.known(domain, node.op_type):
            kind = f"{domain}::{node.op_type}" if domain else f"{node.op_type} (opset {versions.get('', 1)})"
            unknown.setdefault(kind, []).append(node.name or (node.output[0] if node.output else "?"))
    if not unknown:
        return
    listed = "; ".join(f"{kind}: {_some(nodes)}" for kind, nodes in sorted(unknown.items()))
    nodes, kinds = sum(map(len, unknown.values())), len(unknown)
    raise UnsupportedError(
        f"the model has {nodes} node{'s' * (nodes > 1)} of {kinds} op{'s' * (kinds > 1)} that can't be imported",
        got=listed,
        hint=rules.hint(next(iter(sorted(unknown)))),
    )


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > 8 else shown


def _walk(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attr in node.attribute:
            if attr.HasField("g"):
                yield from _walk(attr.g)
            for body in attr.graphs:
                yield from _walk(body)
