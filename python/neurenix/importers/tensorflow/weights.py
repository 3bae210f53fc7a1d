"""Large weights, which go around tf2onnx: each of its optimizers would leave another copy of them in memory."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

#: So many bytes must a weight have.
LARGE = 1 << 20
#: Ops that compute the same on a weight, whether or not it is known when they are converted.
READERS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Gather", "GatherV2", "ResourceGather")
#: Ops that pass it on to others.
THROUGH = ("Identity", "Reshape")


def detached(graph: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Makes inputs of a graph's large weights that only products and look-ups read; their elements by tensor."""
    import tensorflow as tf

    readers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            # What only waits for it (^name) does not read it.
            readers[name.partition(":")[0]].append(node)
    found = {}
    for node in graph.node:
        if node.op != "Const" or node.attr["value"].tensor.ByteSize() < LARGE or not _is_plain(node, readers):
            continue
        array = tf.make_ndarray(node.attr["value"].tensor)
        node.op = "Placeholder"
        node.attr.pop("value")
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
        found[f"{node.name}:0"] = array
    return found


def _is_plain(node: Any, readers: dict[str, list[Any]]) -> bool:
    """Whether nothing but such ops reads what a node gives, through others or at once."""
    found = readers.get(node.name, [])
    # An Identity that nothing reads is left of a variable; one that is an output does no harm.
    return all(reader.op in READERS or (reader.op in THROUGH and _is_plain(reader, readers)) for reader in found)


def attached(model: Any, weights: dict[str, np.ndarray[Any, Any]]) -> None:
    """Gives an ONNX model back its weights, in place of the inputs for them."""
    from onnx import numpy_helper

    left = [port for port in model.graph.input if port.name not in weights]
    there = [port.name for port in model.graph.input if port.name in weights]
    del model.graph.input[:]
    model.graph.input.extend(left)
    model.graph.initializer.extend(numpy_helper.from_array(weights[name], name) for name in there)
