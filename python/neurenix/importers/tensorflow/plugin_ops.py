"""Ops that tf2onnx does not know and a plugin is registered for: their nodes go through, under the names of the ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from neurenix.errors import PluginError, UnsupportedError
from neurenix.importers.onnx import plugin
from neurenix.importers.onnx.graph import Graph, dtype_of

#: The domain of their nodes, which tf2onnx has for ops of TensorFlow's.
DOMAIN = "ai.onnx.converters.tensorflow"
#: Kinds of attributes that fields can hold.
KINDS = ("int", "float", "bool", "string", "list(int)", "list(float)", "list(bool)")

Handler = Callable[[Any, Any, str, Any], None]


def hint(ops: list[str]) -> str:
    """How plugins run ops that tf2onnx does not know."""
    calls = ", ".join(f"trt.register_plugin({op!r}, YourClass)" for op in ops)
    return f"a plugin of the op's name runs it, if you register one before the import: {calls} (docs/plugins.md)"


def handlers(graph: Any, opset: int) -> dict[str, tuple[Handler, list[Any]]]:
    """What passes on the nodes of a graph that a plugin is registered for and tf2onnx does not know, for tf2onnx."""
    import onnx
    from tf2onnx import handler

    known = handler.tf_op.create_mapping(opset, None)
    parts = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    unknown = {node.op for node in parts} - set(known)
    there = [op for op in sorted(unknown) if plugin.identity(onnx.NodeProto(op_type=op, domain=DOMAIN)) is not None]
    return {op: (_pass_on, []) for op in there}


def opsets(found: Mapping[str, Any]) -> list[Any] | None:
    """The opsets that a model with these handlers needs beside ONNX's."""
    import onnx

    return [onnx.helper.make_opsetid(DOMAIN, 1)] if found else None


def _pass_on(context: Any, node: Any, name: str, args: Any) -> None:
    """Leaves a node as it is but for its attributes, which become the fields of the plugin.

    Raises `UnsupportedError` for attributes that are neither numbers, texts nor dtypes.
    """
    import onnx

    fields = dict(_fields(context, node))
    for key in list(node.attr):
        del node.attr[key]
    for key, value in fields.items():
        node.attr[key] = onnx.helper.make_attribute(key, value)
    node.domain = DOMAIN


def _fields(context: Any, node: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of a node without the dtypes of its inputs, which the plugin is told anyway; dtypes as names."""
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(node.type)
    ports = definition.input_arg
    of_inputs = {name for port in ports for name in (port.type_attr, port.type_list_attr, port.number_attr)}
    for attribute in definition.attr:
        name, kind = attribute.name, attribute.type
        if name in of_inputs:
            continue
        if kind == "type":
            yield name, _dtype(context, node, definition, name)
        elif kind not in KINDS:
            raise UnsupportedError(f"attribute {name!r} is of kind {kind}", hint="plugins take numbers and texts")
        elif name in node.attr and not (kind.startswith("list(") and _is_empty(node.attr[name])):
            yield name, node.get_attr_value(name)


def _dtype(context: Any, node: Any, definition: Any, name: str) -> str:
    """The name of a dtype: that of an output where tf2onnx left the attribute out."""
    from tf2onnx import utils

    outputs = [index for index, port in enumerate(definition.output_arg) if port.type_attr == name]
    if name not in node.attr and not outputs:
        raise UnsupportedError(f"attribute {name!r} is a dtype that tf2onnx leaves out")
    given = node.get_attr_int(name) if name in node.attr else context.get_dtype(node.output[outputs[0]])
    return str(np.dtype(utils.map_onnx_to_numpy_type(given)))


def _is_empty(attribute: Any) -> bool:
    return not (attribute.ints or attribute.floats or attribute.strings)


def check_dtypes(model: Any, graph: Graph) -> None:
    """Raises `PluginError` where a plugin gives another dtype than TensorFlow's op, and its readers take that too."""
    declared = {port.name: port.type.tensor_type.elem_type for port in (*model.graph.value_info, *model.graph.output)}
    for node in model.graph.node:
        for name in node.output if node.domain == DOMAIN else ():
            tensor = graph.tensors.get(name)
            wanted = declared.get(name)
            if tensor is not None and wanted and tensor.dtype != dtype_of(wanted):
                raise PluginError(
                    f"the plugin {node.op_type} gives another dtype than the op of TensorFlow",
                    layer=node.name,
                    expected=str(dtype_of(wanted)),
                    got=str(tensor.dtype),
                    hint="say the dtypes in get_output_dtypes",
                )
