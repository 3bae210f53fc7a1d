"""The functions of a model: their calls are replaced by what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neurenix.errors import UnsupportedError
from neurenix.importers.onnx import check

if TYPE_CHECKING:
    import onnx


def inlined(model: onnx.ModelProto) -> onnx.GraphProto:
    """The graph with the calls of the model's own functions replaced by their bodies.

    Raises `UnsupportedError` where ONNX's library can't do that.
    """
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
