"""Nodes of torch's exporters that nothing reads: some of them are no valid ONNX."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def without_unused(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without nodes that no output depends on; changes it in place.

    The dynamo exporter writes all results of an operator, such as the statistics that a normalisation by known ones
    gives: in 16 bits they are divided by a constant of float32.
    """
    nodes = model.graph.node
    needed = {port.name for port in model.graph.output}
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(_read(node))
    if len(kept) < len(nodes):
        left = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(kept)]
        del nodes[:]
        nodes.extend(left)
    return model


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, in the graphs inside of it too."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from (port.name for port in graph.output)
            for inner in graph.node:
                yield from _read(inner)
