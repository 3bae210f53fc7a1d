"""Walks an ONNX graph and adds its nodes to a Network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neurenix._native import Network, Tensor
from neurenix.errors import Error, FormatError, UnsupportedError
from neurenix.importers.onnx import check, plugin, ports, rules, schema
from neurenix.importers.onnx.convert import converted
from neurenix.importers.onnx.inlining import inlined
from neurenix.importers.onnx.node import Array, Node
from neurenix.importers.onnx.values import (
    AppendedSequence,
    Element,
    EmptyOptional,
    Given,
    KnownSequence,
    Ports,
    RaggedSequence,
    StackedSequence,
    Value,
    kind,
    rebuilt,
)
from neurenix.importers.onnx.weights import Weights, dtype_of, no_strings

if TYPE_CHECKING:
    import onnx

__all__ = ["Graph", "dtype_of", "import_graph", "import_model"]

#: Since this version of the format a weight that is listed among the inputs is an input with a default value; before,
#: every weight had to be listed there.
IR_OF_DEFAULTS = 4
#: So many nodes may loops be when their steps are written out.
MOST_INLINED = 1 << 17


def import_model(
    model: onnx.ModelProto,
    folder: Path | None,
    input_shapes: dict[str, Sequence[int | str]],
    names: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    follow_links: bool = False,
    seed: int | None = None,
    apart: Mapping[str, Array] | None = None,
    sizes_of_floats: bool = True,
) -> Network:
    """The network of a model. `folder` is where external data lies, `names` says what to call inputs and outputs.

    `values` are the elements of inputs that become constants; with `follow_links`, links in the folder may lead out
    of it. `seed` says which numbers the ops of random numbers give, which are refused without one; `apart` has the
    weights that `wire.read` took out. `sizes_of_floats`: whether sizes may follow from floats that are weights, which
    are then read once.
    """
    found = import_graph(model, folder, input_shapes, names, values, follow_links, seed, apart, sizes_of_floats)
    return found.network


def import_graph(
    model: onnx.ModelProto,
    folder: Path | None,
    input_shapes: dict[str, Sequence[int | str]],
    names: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    follow_links: bool = False,
    seed: int | None = None,
    apart: Mapping[str, Array] | None = None,
    sizes_of_floats: bool = True,
    keeps_names: bool = False,
) -> Graph:
    """As `import_model`, with what the names of the model stand for.

    With `keeps_names` no two names of computed tensors stand for one: what a node passes through goes through Identity.
    """
    with check.only_our_errors():
        weights = Weights(folder, follow_links, apart)
        return _import(model, weights, input_shapes, names or {}, values or {}, seed, sizes_of_floats, keeps_names)


def _import(
    given: onnx.ModelProto,
    weights: Weights,
    shapes: Mapping[str, Sequence[int | str]],
    names: Mapping[str, str],
    values: Mapping[str, Any],
    seed: int | None,
    sizes_of_floats: bool,
    keeps_names: bool,
) -> Graph:
    check.versions(given)
    check.depth(given.graph)
    model = converted(given, weights)
    versions = check.versions(model)
    proto = inlined(model)
    check.names(model.graph)
    check.known(proto, versions)
    graph = Graph(Network(proto.name or "onnx"), versions, weights, names)
    graph.was_converted, graph.seed, graph.sizes_of_floats = model is not given, seed, sizes_of_floats
    graph.keeps_names, graph.from_torch = keeps_names, given.producer_name == "pytorch"
    graph.add_initializers(model.graph.initializer, model.graph.sparse_initializer)
    ports.add_values(graph, proto.input, values)
    if model.ir_version >= IR_OF_DEFAULTS:
        ports.forget_defaults(graph, proto.input, shapes)
    ports.add_inputs(graph, proto.input, shapes)
    graph.add_nodes(proto.node)
    ports.mark_outputs(graph, proto.output)
    return graph


#: More dimensions no shape has.
_MOST_SIZES = 8


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
        #: What it gives, where it is the body of a node.
        self.results: list[Given] = []
        #: How many nodes were written out so far of graphs inside of others; all graphs of a model share it.
        self.inlined: list[int] = [0] if around is None else around.inlined
        self.names = names
        self.versions = versions
        self.weights = weights
        #: Whether ONNX's converter made the model out of one older than opset 7.
        self.was_converted = False
        #: Says which numbers the ops of random numbers give.
        self.seed: int | None = None
        #: Whether sizes may follow from floats that are weights.
        self.sizes_of_floats = True
        #: Whether PyTorch's exporter wrote the model, whose operators differ from ONNX's reference here and there.
        self.from_torch = False
        #: Whether what a node passes through is a tensor of its own.
        self.keeps_names = False
        self.constants: dict[str, Array] = {}
        #: Constants that are no weights: literals of the model, and what follows from them and from fixed shapes.
        self.determined: set[str] = set()
        #: Those of them that layers give as well, since floats that are weights are a part of them.
        self.live: set[str] = set()
        self.tensors: dict[str, Tensor] = {}
        #: Sequences and optional values.
        self.values: dict[str, Value] = {}
        self.aliases: dict[str, str] = {}
        #: For floats that are integers which the shapes determine, cast: those integers.
        self.wholes: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def tensor(self, name: str) -> Tensor:
        """What a name stands for; a constant enters the network when something first reads it."""
        name = self.aliases.get(name, name)
        if name not in self.tensors:
            value = self.value(name)
            if value is not None:
                raise UnsupportedError("a tensor is wanted here", tensor=name, expected="a tensor", got=kind(value))
            if name in self.constants:
                self.tensors[name] = self.network.add_constant(name, self.constants[name], copy=False)
            elif self.around is not None:
                self.tensors[name] = self.inward(self.around.tensor(name))
            else:
                raise FormatError("a node reads a tensor that nothing gives", tensor=name)
        return self.tensors[name]

    def value(self, name: str) -> Value | None:
        """The sequence or optional value that a name stands for; None for a tensor.

        Its tensors may belong to a graph around: `bring` gives them.
        """
        name = self.aliases.get(name, name)
        if self.around is None or self.has(name):
            return self.values.get(name)
        return self.around.value(name)

    def has(self, name: str) -> bool:
        """Whether this graph itself says what a name stands for."""
        return name in self.constants or name in self.tensors or name in self.values

    def given(self, name: str) -> Given:
        """What a name stands for, with what is known of it."""
        value = self.value(name)
        if value is not None:
            return value
        array, determined = self.constant(name), self.is_determined(name)
        return Element(None if determined and array is not None else self.tensor(name), array, determined)

    def put(self, name: str, given: Given) -> None:
        """Says what a name stands for."""
        if isinstance(given, np.ndarray):
            given = Element(None, given, determined=True)
        if isinstance(given, Tensor):
            self.tensors[name] = self.bring(Element(given))
        elif not isinstance(given, Element):
            self.values[name] = given
        else:
            if given.tensor is not None:
                self.tensors[name] = self.bring(given)
            if given.array is not None:
                self.constants[name] = given.array
            if given.determined:
                self.determined.add(name)

    def bring(self, element: Element) -> Tensor:
        """An element, whose tensor may belong to a graph around, as a tensor of this network."""
        if element.tensor is None:
            assert element.array is not None
            return self.network.add_constant("", element.array, copy=False)
        if element.tensor.network is self.network:
            return element.tensor
        assert self.around is not None
        return self.inward(self.around.bring(element))

    def tensor_of(self, given: Given) -> Tensor:
        """A value that must be a tensor."""
        if isinstance(given, Tensor):
            return self.bring(Element(given))
        if isinstance(given, Element):
            return self.bring(given)
        raise UnsupportedError("a tensor is wanted here", expected="a tensor", got=kind(given))

    def tensors_of(self, given: Given) -> list[Tensor]:
        """The tensors that a value is made of."""
        if isinstance(given, (KnownSequence, AppendedSequence)):
            return [self.bring(element) for element in given.elements]
        if isinstance(given, StackedSequence):
            return [self.bring(Element(given.tensor))]
        if isinstance(given, RaggedSequence):
            return [self.bring(Element(tensor)) for tensor in (given.tensor, given.lengths)]
        return [] if isinstance(given, EmptyOptional) else [self.tensor_of(given)]

    def inward(self, outer: Tensor) -> Tensor:
        """A tensor of the graph around, whose network may be this one."""
        return outer if outer.network is self.network else self.capture(outer)

    def capture(self, outer: Tensor) -> Tensor:
        """Brings in a tensor of the network around."""
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

    def body(self, name: str, proto: onnx.GraphProto, inputs: Sequence[Ports | Given]) -> Graph:
        """The graph of an attribute as a network of its own, in which some inputs stand for values of this graph.

        It has no results yet.
        """
        _check_count(proto, len(inputs))
        inner = self.inside(Network(name), name, proto)
        given = list(zip((port.name for port in proto.input), inputs, strict=True))
        for port, value in given:
            if isinstance(value, Ports):
                names = [port] if len(value.ports) == 1 else [f"{port}_{index}" for index in range(len(value.ports))]
                tensors = (inner.network.add_input(one, *p) for one, p in zip(names, value.ports, strict=True))
                inner.put(port, rebuilt(value.like, tensors))
        # What is captured becomes an input, too, behind these.
        for port, value in given:
            if not isinstance(value, Ports):
                inner.put(port, value)
        inner.add_nodes(proto.node)
        inner.results = [inner.given(output.name) for output in proto.output]
        return inner

    def mark(self, tensors: Sequence[Tensor]) -> None:
        """Makes tensors the results of a network that a node holds."""
        for index, tensor in enumerate(tensors):
            self.network.mark_output(tensor, f"{index}: {tensor.name}")

    def inline(self, name: str, proto: onnx.GraphProto, inputs: Sequence[Given]) -> list[Given]:
        """Adds the nodes of the graph of an attribute to this network, on these inputs; gives the outputs."""
        _check_count(proto, len(inputs))
        self.inlined[0] += len(proto.node)
        if self.inlined[0] > MOST_INLINED:
            raise UnsupportedError(
                "the steps of the loops are too many nodes when they are written out",
                expected=f"at most {MOST_INLINED}",
                hint="leave the number of steps to the call, or make them fewer",
            )
        inner = self.inside(self.network, name, proto)
        for port, given in zip(proto.input, inputs, strict=True):
            inner.put(port.name, given)
        inner.add_nodes(proto.node)
        return [inner.given(output.name) for output in proto.output]

    def inside(self, network: Network, name: str, proto: onnx.GraphProto) -> Graph:
        """A graph that sees the names of this one, and so far has its own weights alone."""
        inner = Graph(network, self.versions, self.weights, {}, around=self)
        inner.prefix, inner.seed, inner.sizes_of_floats = f"{name}/", self.seed, self.sizes_of_floats
        inner.from_torch = self.from_torch
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
        source = next(iter(node.proto.input), "")
        if rule is rules.IDENTITY and not self.passes_through(node, self.tensors.get(source)):
            self.aliases[node.outputs[0]] = self.aliases.get(source, source)
            return
        given = rule(node)
        outputs = list(given) if isinstance(given, Sequence) else [given]
        for index, name in enumerate(node.outputs):
            if name == "":
                continue
            output = outputs[index] if index < len(outputs) else None
            if output is None:
                raise UnsupportedError(f"output {index} of {node.op} is not supported", tensor=name)
            output = self.apart(node, name, output)
            self.put(name, output)
            if isinstance(output, Tensor):
                self.determine(node, name, output)

    def passes_through(self, node: Node, output: Given | None) -> bool:
        """Whether `keeps_names` asks for another tensor, as an output is a computed one that the node reads."""
        if not self.keeps_names or not isinstance(output, Tensor):
            return False
        sources = (self.aliases.get(source, source) for source in node.proto.input)
        return any(source not in self.constants and self.tensors.get(source) == output for source in sources)

    def apart(self, node: Node, name: str, output: Given) -> Given:
        """An output; where the node passes an input through, another tensor."""
        if not isinstance(output, Tensor) or not self.passes_through(node, output):
            return output
        source = self.aliases.get(node.proto.input[0], node.proto.input[0])
        if source in self.wholes:
            self.wholes[name] = self.wholes[source]
        return node.add("Identity", output)

    def determine(self, node: Node, name: str, tensor: Tensor) -> None:
        """Makes a constant of a small tensor that literals and fixed shapes determine, so that what needs one finds it.

        What follows from weights alone stays a layer, and what their floats are a part of is one besides: new weights
        may come.
        """
        sources = [self.aliases.get(source, source) for source in node.proto.input if source]
        if node.op not in ("Shape", "Size"):
            known = [self.is_determined(source) for source in sources]
            if not any(known) or not all(k or self.is_constant(s) for k, s in zip(known, sources, strict=True)):
                return
        value = tensor.known()
        if value is None:
            return
        self.determined.add(name)
        self.constants[name] = value
        no_size = not self.sizes_of_floats or node.op in ("ArgMax", "ArgMin", "TopK") or not _may_be_sizes(value)
        if no_size and any(map(self.is_weight, sources)):
            self.live.add(name)
        else:
            del self.tensors[name]

    def is_weight(self, name: str) -> bool:
        """Whether a name stands for floats of the model, or for what follows from them, of which new ones may come."""
        if name in self.live:
            return True
        if name not in self.constants and name not in self.tensors:
            return self.around is not None and self.around.is_weight(name)
        return name in self.constants and name not in self.determined and self.constants[name].dtype.kind not in "biu"

    def is_determined(self, name: str) -> bool:
        """Whether literals and fixed shapes determine what a name stands for."""
        if name in self.values:
            return all(element.determined for element in _elements(self.values[name]))
        return name in self.determined or (
            self.around is not None and name not in self.tensors and self.around.is_determined(name)
        )

    def is_constant(self, name: str) -> bool:
        """Whether the elements of what a name stands for are known."""
        if name in self.values:
            return all(element.array is not None for element in _elements(self.values[name]))
        return self.constant(name) is not None

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
                raise no_strings(node.outputs[0])
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


def _may_be_sizes(value: Array) -> bool:
    """Whether numbers may be a shape or a part of one, which must be known when a layer is added."""
    return value.dtype.kind in "iu" and value.ndim <= 1 and value.size <= _MOST_SIZES


def _elements(value: Value) -> tuple[Element, ...]:
    """The elements of a sequence; one that no call knows stands for those of one whose length a call decides."""
    return value.elements if isinstance(value, KnownSequence) else (Element(None),)


def _check_count(proto: onnx.GraphProto, given: int) -> None:
    if len(proto.input) != given:
        raise FormatError(
            "the graph inside takes another number of inputs than the node gives it",
            expected=str(given),
            got=", ".join(port.name for port in proto.input) or "none",
        )
