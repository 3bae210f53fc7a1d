"""Constants that torch's dynamo exporter leaves out of what it writes."""

from __future__ import annotations

from typing import Any

import onnx


def model_of(program: Any) -> onnx.ModelProto:
    """What the exporter made (`torch.onnx.ONNXProgram`) as a model.

    Where two nodes have constants of one name, such as the bounds of two clamps, it renames the first, and forgets that
    it is one.
    """
    graph = program.model.graph
    for node in graph.all_nodes():
        for given in node.inputs:
            constant = given is not None and given.producer() is None and given.const_value is not None
            if constant and not given.is_initializer() and not given.is_graph_input():
                graph.register_initializer(given)
    found: onnx.ModelProto = program.model_proto
    return found
