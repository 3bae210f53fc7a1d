"""Nodes of ops that no rule knows: plugins of their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neurenix import _native
from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx.node import Node

if TYPE_CHECKING:
    import onnx

#: Attributes that name the plugin, as TensorRT's parser has them.
VERSION, NAMESPACE = "plugin_version", "plugin_namespace"
#: The types of attributes that are graphs.
GRAPHS = (5, 10)

Identity = tuple[str, str, str]


def _said(proto: onnx.NodeProto) -> dict[str, str]:
    named = (attr for attr in proto.attribute if attr.name in (VERSION, NAMESPACE))
    return {attr.name: attr.s.decode("utf-8", "replace") for attr in named}


def identity(proto: onnx.NodeProto) -> Identity | None:
    """The plugin of a node: by its op, in the namespace that it names, else in one of its domain's name, else in none.

    None where the registry has no such plugin.
    """
    said = _said(proto)
    namespaces = [said[NAMESPACE]] if NAMESPACE in said else [proto.domain, ""]
    registered = _native.registered_plugins()
    for namespace in namespaces:
        found = _native.resolve_plugin(proto.op_type, said.get(VERSION), namespace)
        if found in registered:
            return found
    return None


def wanted(proto: onnx.NodeProto) -> str:
    """What would have to be registered for a node."""
    said = _said(proto)
    options = [repr(proto.op_type), "YourClass"]
    options += [f"version={said[VERSION]!r}"] if VERSION in said else []
    options += [f"namespace={said[NAMESPACE]!r}"] if said.get(NAMESPACE) else []
    return f"trt.register_plugin({', '.join(options)})"


def rule(node: Node) -> Sequence[Tensor]:
    """A layer of the plugin; the attributes of the node are its fields."""
    # numpy and ml_dtypes are enough to import a model; what packs fields belongs to the network API.
    from neurenix.hardware.tensorrt.layer import Scope
    from neurenix.hardware.tensorrt.plugins.composed import add_registered
    from neurenix.hardware.tensorrt.plugins.fields import pack_all

    found = identity(node.proto)
    if found is None:
        raise UnsupportedError(f"no rule imports {node.op}, and no plugin of that name is registered")
    fields: dict[str, Any] = {}
    for attr in node.proto.attribute:
        if attr.type in GRAPHS:
            raise UnsupportedError(f"attribute {attr.name!r} of a plugin is a graph", hint="plugins take no graphs")
        if attr.name not in (VERSION, NAMESPACE):
            value = node.attrs[attr.name]
            fields[attr.name] = node.graph.read(value) if hasattr(value, "DESCRIPTOR") else value
    inputs = [node[index] for index in range(len(node))]
    outputs = add_registered(Scope(node.graph.network, node.name, [*inputs]), inputs, found, pack_all(fields))
    beyond = next((name for name in node.outputs[len(outputs) :] if name), None)
    if beyond is not None:
        raise UnsupportedError(
            f"output {list(node.outputs).index(beyond)} of {node.op} is not supported",
            tensor=beyond,
            expected=f"at most {len(outputs)}, the number of outputs that plugin {found[0]} gives",
            got=str(len(node.outputs)),
            hint="get_output_shape gives a list of shapes, one for each output",
        )
    return outputs
