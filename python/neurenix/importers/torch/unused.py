"""Nodes of torch's exporters that nothing reads: some of them are no valid ONNX."""

from __future__ import annotations

import onnx

from neurenix.importers.onnx.reads import needed


def without_unused(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without nodes that no output depends on; changes it in place.

    The dynamo exporter writes all results of an operator, such as the statistics that a normalisation by known ones
    gives: in 16 bits they are divided by a constant of float32.
    """
    nodes = model.graph.node
    kept = needed(nodes, [port.name for port in model.graph.output])
    if len(kept) < len(nodes):
        left = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del nodes[:]
        nodes.extend(left)
    return model
