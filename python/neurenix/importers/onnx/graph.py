"""Walks an ONNX graph and adds its nodes to a Network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from neurenix import names as naming
from neurenix._native import Network, Tensor
from neurenix.errors import Error, FormatError, InvalidArgumentError, UnsupportedError
from neurenix.importers.onnx import around, check, plugin, rules, schema
from neurenix.importers.onnx.convert import converted
from neurenix.importers.onnx.node import Array, Node
from neurenix.importers.onnx.weights import Weights, dtype_of

if TYPE_CHECKING:
    import onnx

__all__ = ["Graph", "dtype_of", "import_graph", "import_model"]

#: dtype and shape of an input.
Port = tuple[Any, Sequence[int | str]]
#: Since this version of the format a weight that is listed among the inputs is an input with a default value; before,
#: every weight had to be listed there.
IR_OF_DEFAULTS = 4


def import_model(
    model: onnx.ModelProto,
    folder: Path | None,
    input_shapes: dict[str, Sequence[int | str]],
    names: Mapping[str, str] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    follow_links: bool = False,
) -> Network:
    """The network of a model. `folder` is where external data lies, `names` says what to call inputs and outputs.

    `values` are the elements of inputs that become constants; with `follow_links`, links in the folder may lead out
    of it.
    """
    return import_graph(model, folder, input_shapes, names, values, follow_links).network


def import_graph(
    model: onnx.ModelProto,
    folder: Path | None,
    input_shapes: dict[str, Sequence[int | str]],
    names: Mapping[str, str] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    follow_links: bool = False,
) -> Graph:
    """As `import_model`, with what the names of the model stand for."""
    with check.only_our_errors():
        return _import(model, Weights(folder, follow_links), input_shapes, names or {}, values or {})


def _import(
    given: onnx.ModelProto,
    weights: Weights,
    shapes: Mapping[str, Sequence[int | str]],
    names: Mapping[str, str],
    values: Mapping[str, ArrayLike],
) -> Graph:
    check.versions(given)
    check.depth(given.graph)
    model = converted(given, weights)
    versions = check.versions(model)
    proto = _inlined(model)
    check.names(model.graph)
    check.known(proto, versions)
    graph = Graph(Network(proto.name or "onnx"), versions, weights, names)
    graph.was_converted = model is not given
    graph.add_initializers(model.graph.initializer, model.graph.sparse_initializer)
    graph.add_values(proto.input, values)
    if model.ir_version >= IR_OF_DEFAULTS:
        graph.forget_defaults(proto.input, shapes)
    graph.add_inputs(proto.input, shapes)
    graph.add_nodes(proto.node)
    for output in proto.output:
        around.mark_output(graph.network, graph.tensor(output.name), graph.names.get(output.name, output.name))
    return graph


class Graph:
    """A network in the making, and what the names of the ONNX graph stand for so far."""

    def __init__(
        self,
        network: Network,
        versions: dict[str, int],
        weights: Weights,
        names: Mapping[str, str],
        around: Graph | None = None,
    ) -> None:
        self.network = network
        #: The graph that this one is a part of: the body of a Loop reads names of what stands around it.
        self.around = around
        #: What stands in front of the names of its nodes.
        self.prefix = ""
        #: What the last inputs of the network stand for in the network around.
        self.captures: list[Tensor] = []
        self.names = names
        self.versions = versions
        self.weights = weights
        #: Whether ONNX's converter made the model out of one older than opset 7.
        self.was_converted = False
        self.constants: dict[str, Array] = {}
        #: Constants that are no weights: literals of the model, and what follows from them and from fixed shapes.
        self.determined: set[str] = set()
        self.tensors: dict[str, Tensor] = {}
        self.aliases: dict[str, str] = {}
        #: For floats that are integers which the shapes determine, cast: those integers.
        self.wholes: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def tensor(self, name: str) -> Tensor:
        """What a name stands for; a constant enters the network when something first reads it."""
        name = self.aliases.get(name, name)
        if name not in self.tensors:
            if name in self.constants:
                self.tensors[name] = self.network.add_constant(name, self.constants[name], copy=False)
            elif self.around is not None:
                outer = self.around.tensor(name)
                self.tensors[name] = outer if outer.network is self.network else self.capture(outer)
            else:
                raise FormatError("a node reads a tensor that nothing gives", tensor=name)
        return self.tensors[name]

    def capture(self, outer: Tensor) -> Tensor:
        """Brings in a tensor of the graph around."""
        before = len(self.network.inputs)
        tensor = self.network.capture(outer)
        if len(self.network.inputs) > before:
            self.captures.append(outer)
        return tensor

    def constant(self, name: str) -> Array | None:
        """The elements of a constant; None for what is computed."""
        name = self.aliases.get(name, name)
        if name in self.constants or name in self.tensors or self.around is None:
            return self.constants.get(name)
        return self.around.constant(name)

    def body(self, name: str, proto: onnx.GraphProto, inputs: Sequence[Port]) -> Graph:
        """The graph of an attribute as a graph of its own, with inputs of these dtypes and shapes."""
        _check_count(proto, len(inputs))
        inner = self.inside(Network(name), name, proto)
        for port, (dtype, shape) in zip(proto.input, inputs, strict=True):
            inner.tensors[port.name] = inner.network.add_input(port.name, dtype, shape)
        inner.add_nodes(proto.node)
        for index, output in enumerate(proto.output):
            inner.network.mark_output(inner.tensor(output.name), f"{index}: {output.name}")
        return inner

    def inline(self, name: str, proto: onnx.GraphProto, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Adds the nodes of the graph of an attribute to this network, on these inputs; gives the outputs."""
        _check_count(proto, len(inputs))
        inner = self.inside(self.network, name, proto)
        inner.tensors.update(zip((port.name for port in proto.input), inputs, strict=True))
        inner.add_nodes(proto.node)
        return [inner.tensor(output.name) for output in proto.output]

    def inside(self, network: Network, name: str, proto: onnx.GraphProto) -> Graph:
        """A graph that sees the names of this one, and so far has its own weights alone."""
        inner = Graph(network, self.versions, self.weights, {}, around=self)
        inner.prefix = f"{name}/"
        inner.add_initializers(proto.initializer, proto.sparse_initializer)
        return inner

    def dtype(self, name: str) -> str | None:
        """The element type of what a name stands for; None where nothing gives it."""
        name = self.aliases.get(name, name)
        if name in self.constants:
            return str(self.constants[name].dtype)
        if name in self.tensors:
            return str(self.tensors[name].dtype)
        return None if self.around is None else self.around.dtype(name)

    def add_initializers(
        self, initializers: Sequence[onnx.TensorProto], sparse: Sequence[onnx.SparseTensorProto] = ()
    ) -> None:
        """Takes the weights."""
        for proto in initializers:
            self.constants[proto.name] = self.read(proto)
        for wide in sparse:
            self.constants[wide.values.name] = self.weights.read_sparse(wide)

    def forget_defaults(self, inputs: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, Any]) -> None:
        """Makes inputs of those weights that are inputs with a default value and whose shape the caller names."""
        for port in inputs:
            if port.name in shapes:
                self.constants.pop(port.name, None)

    def add_values(self, inputs: Sequence[onnx.ValueInfoProto], values: Mapping[str, ArrayLike]) -> None:
        """Takes inputs whose elements the caller knows: they are constants."""
        ports = {port.name: port.type.tensor_type for port in inputs}
        for name, value in values.items():
            if name not in ports:
                raise InvalidArgumentError(
                    f"the model has no input {name!r}, of which a value is given",
                    expected=", ".join(ports),
                    hint=naming.hint(name, ports),
                )
            self.constants[name] = _fitting(name, value, ports[name])

    def add_inputs(self, inputs: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int | str]]) -> None:
        """Takes the inputs; older files list the weights among them."""
        wanted = [i for i in inputs if i.name not in self.constants]
        names = [i.name for i in wanted]
        for name in shapes:
            if name not in names:
                raise InvalidArgumentError(
                    f"the model has no input {name!r}", expected=", ".join(names), hint=naming.hint(name, names)
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
        try:
            self.tensors[proto.name] = around.add_input(self.network, name, dtype_of(info.elem_type), dims)
        except Error as error:
            error.tensor = error.tensor or proto.name
            raise

    def add_nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Adds nodes, each after those that it reads.

        Whatever goes wrong is an error of ours that names the node.
        """
        for proto in check.ordered(nodes):
            name, domain = self.name_of(proto), check.own_domain(proto.domain)
            version = self.versions.get(domain, 1)
            try:
                with check.only_our_errors():
                    schema.check(proto, domain, version, self.dtype)
                    rule = rules.find(domain, proto.op_type) or plugin.rule
                    self.add_node(Node(self, proto, name, version), rule)
            except Error as error:
                if error.layer is None:
                    error.layer = f"{name} ({proto.op_type})"
                raise

    def add_node(self, node: Node, rule: rules.Rule) -> None:
        """Adds one node by its rule."""
        if rule is rules.CONSTANT:
            self.constants[node.outputs[0]] = self.constant_of(node)
            self.determined.add(node.outputs[0])
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
            self.determine(node, name, tensor)

    def determine(self, node: Node, name: str, tensor: Tensor) -> None:
        """Makes a constant of a small tensor that literals and fixed shapes determine, so that what needs one finds it.

        What follows from weights alone stays a layer: new weights may come.
        """
        sources = [self.aliases.get(source, source) for source in node.proto.input if source]
        if node.op not in ("Shape", "Size"):
            known = [self.is_determined(source) for source in sources]
            if not any(known) or not all(
                k or self.constant(s) is not None for k, s in zip(known, sources, strict=True)
            ):
                return
        value = tensor.known()
        if value is not None:
            self.determined.add(name)
            self.constants[name] = value
            del self.tensors[name]

    def is_determined(self, name: str) -> bool:
        """Whether literals and fixed shapes determine what a name stands for."""
        return name in self.determined or (
            self.around is not None and name not in self.tensors and self.around.is_determined(name)
        )

    def constant_of(self, node: Node) -> Array:
        """The array of a Constant node, however it is written."""
        for name, value in node.attrs.items():
            if name == "value":
                return self.read(value)
            if name in ("value_float", "value_floats"):
                return np.asarray(value, np.float32)
            if name in ("value_int", "value_ints"):
                return np.asarray(value, np.int64)
            if name == "sparse_value":
                return self.weights.read_sparse(value)
            if name in ("value_string", "value_strings"):
                raise UnsupportedError("texts are not supported", tensor=node.outputs[0])
        raise FormatError("a Constant has no value", tensor=node.outputs[0], got=", ".join(node.attrs) or None)

    def read(self, proto: onnx.TensorProto) -> Array:
        """The elements of a tensor of the model."""
        return self.weights.read(proto)

    def name_of(self, proto: onnx.NodeProto) -> str:
        """The node's name; one without a name is called by its op and a number.

        Inside another node its name stands in front: sizes that depend on data are named after layers.
        """
        number = self.counts.get(proto.op_type, 0)
        self.counts[proto.op_type] = number + 1
        return self.prefix + (proto.name or f"{proto.op_type}_{number}")


def _check_count(proto: onnx.GraphProto, given: int) -> None:
    if len(proto.input) != given:
        raise FormatError(
            "the graph inside takes another number of inputs than the node gives it",
            expected=str(given),
            got=", ".join(port.name for port in proto.input) or "none",
        )


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
    from onnx.version_converter import ConvertError

    if not model.functions:
        return model.graph
    check.functions(model)
    light = onnx.ModelProto(ir_version=model.ir_version, functions=model.functions)
    light.opset_import.extend(model.opset_import)
    graph = model.graph
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.input.extend(graph.input)
    light.graph.output.extend(graph.output)
    weights = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
    for tensor in weights:
        # The inliner needs the name alone, so that it takes no name twice.
        light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=[0])
    _write_defaults(light)
    try:
        return inline_local_functions(light, convert_version=True).graph
    except (ConvertError, RuntimeError, ValueError) as error:
        raise UnsupportedError(
            "ONNX's own library can't replace the functions of the model by their bodies: "
            + " ".join(str(error).split()),
            hint="export the model without functions",
        ) from error


def _write_defaults(model: onnx.ModelProto) -> None:
    """Writes the default values of functions' attributes at the calls that leave them out: the inliner forgets them."""
    defaults = {
        (check.own_domain(f.domain), f.name, f.overload): f.attribute_proto
        for f in model.functions
        if f.attribute_proto
    }
    for graph in (model.graph, *model.functions):
        for node in check.walk(graph):
            given = {attr.name for attr in node.attribute}
            key = (check.own_domain(node.domain), node.op_type, node.overload)
            node.attribute.extend(attr for attr in defaults.get(key, ()) if attr.name not in given)
