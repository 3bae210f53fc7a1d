"""Parts of an ONNX model: all its tensors as outputs, or some of its nodes as a model of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.external_data_helper import load_external_data_for_model

from neurenix.importers.onnx import read_model
from neurenix.importers.onnx.reads import given_by, needed, read_by

Arrays = dict[str, "np.ndarray[Any, Any]"]


def read(path: str) -> onnx.ModelProto:
    """A model with the weights that lie in files beside it; raises as `from_onnx`."""
    model, folder = read_model(path)
    if folder is not None:
        load_external_data_for_model(model, str(folder))
    return model


def input_names(model: onnx.ModelProto) -> list[str]:
    """The inputs that have no default value."""
    held = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in held]


def with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with these tensors as its only outputs, and the nodes that they need."""
    wanted = list(dict.fromkeys(names))
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.output[:], made.graph.value_info[:]
    made.graph.node.extend(needed(model.graph.node, wanted))
    typed = {value.name: value for value in (*model.graph.output, *model.graph.value_info)}
    made.graph.output.extend(typed.get(name) or onnx.ValueInfoProto(name=name) for name in wanted)
    return made


def cut(model: onnx.ModelProto, chosen: Sequence[int], values: Mapping[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    """The nodes of these numbers as a model. What others give them are its inputs, of the shapes of `values`.

    Its outputs are what other nodes or the caller read of them, and what nobody reads.
    """
    nodes = [model.graph.node[number] for number in sorted(chosen)]
    rest = [node for number, node in enumerate(model.graph.node) if number not in set(chosen)]
    given = {name for node in nodes for name in given_by(node)}
    reads = {name for node in nodes for name in read_by(node)}
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    outside = {name for node in rest for name in read_by(node)} | {value.name for value in model.graph.output}
    inputs = [name for name in values if name in reads - given - set(held)]
    outputs = [name for node in nodes for name in given_by(node) if name in outside or name not in reads]
    graph = helper.make_graph(
        nodes,
        f"{model.graph.name or 'model'}_reduced",
        [_info(name, values[name]) for name in inputs],
        [_info(name, values[name]) if name in values else onnx.ValueInfoProto(name=name) for name in outputs],
        [held[name] for name in held if name in reads],
    )
    made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    made.functions.extend(model.functions)
    return made


def _info(name: str, array: np.ndarray[Any, Any]) -> onnx.ValueInfoProto:
    dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, dtype, array.shape)
