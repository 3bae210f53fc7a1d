"""What is done with lists outside of loops, or with lists that are tensors inside of them.

Each handler takes the lists of a graph and a node, raises `UnsupportedError` where the shape of elements is missing,
and leaves a node alone whose list nothing is known of: tf2onnx refuses it then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neurenix.importers.tensorflow.lists.bodies import users
from neurenix.importers.tensorflow.lists.lists import Lists
from neurenix.importers.tensorflow.lists.refusals import refusal
from neurenix.importers.tensorflow.lists.values import Blank, Dense, List, Tensors, known
from neurenix.importers.tensorflow.recurrent.reading import NoMatch, Reader


def _outline(graph: Any, tensor: str) -> list[int] | None:
    """A constant shape, whose open dimensions are -1, or None."""
    try:
        value = np.asarray(Reader(graph).value(tensor))
    except NoMatch:
        return None
    return [int(one) for one in value] if value.ndim == 1 else None


def _shape(graph: Any, tensor: str) -> list[int] | None:
    """A constant shape without open dimensions, or None."""
    return known(_outline(graph, tensor))


def _element(make: Tensors, item: str) -> str | list[int]:
    """The shape of an element."""
    return known(make.graph.get_shape(item)) or make.dims(item, 0)


def _dtype(node: Any) -> int:
    return int(node.get_attr("element_dtype").i)


def _reserve(lists: Lists, node: Any) -> None:
    lists.put(node.output[0], Blank(node.input[1], _outline(lists.graph, node.input[0]), _dtype(node)))


def _from_tensor(lists: Lists, node: Any) -> None:
    if node.inputs[0].type != "RaggedTensorToVariant":
        lists.put(node.output[0], Dense(node.input[0], _dtype(node)))


def _set_item(lists: Lists, node: Any) -> None:
    value, make = lists.read(node), Tensors(lists.graph, node.name)
    if value is None:
        return
    element, index = _element(make, node.input[2]), make.sizes(node.input[1])
    base = make.dense(value, element)
    resize = node.get_attr("resize_if_index_out_of_bounds")
    if resize is not None and resize.i:
        base = make.grown(base, make.after(index, make.dims(base, 0, 1)), element, _dtype(node))
    shape = lists.graph.get_shape(node.input[2])
    items = make.typed(
        "Unsqueeze", [node.input[2], make.const([0])], _dtype(node), None if shape is None else [1, *shape]
    )
    lists.put(node.output[0], Dense(make.written(base, index, items, _dtype(node)), _dtype(node)))


def _get_item(lists: Lists, node: Any) -> None:
    if not lists.own(node.input[0]):
        _gathered(lists, node)


def _gathered(lists: Lists, node: Any) -> None:
    value, graph = lists.read(node), lists.graph
    if value is not None:
        make = Tensors(graph, node.name)
        base = make.dense(value, _shape(graph, node.input[2]))
        _give(lists, node, make.typed("Gather", [base, node.input[1]], _dtype(node), graph.get_shape(node.output[0])))


def _stack(lists: Lists, node: Any) -> None:
    value = lists.read(node)
    if value is not None:
        _give(lists, node, Tensors(lists.graph, node.name).dense(value, _shape(lists.graph, node.input[1])))


def _length(lists: Lists, node: Any) -> None:
    from onnx import TensorProto

    value, make = lists.get(node.input[0]), Tensors(lists.graph, node.name)
    if isinstance(value, Blank):
        _give(lists, node, value.count)
    elif value is not None:
        count = make.typed("Squeeze", [make.dims(value.tensor, 0, 1), make.const([0])], TensorProto.INT64, [])
        _give(lists, node, make.typed("Cast", [count], TensorProto.INT32, [], to=TensorProto.INT32))


def _concat(lists: Lists, node: Any) -> None:
    value, graph = lists.read(node), lists.graph
    if value is None:
        return
    make = Tensors(graph, node.name)
    base = make.dense(value, _shape(graph, node.input[1]))
    shape = graph.get_shape(base)
    if not shape or len(shape) < 2 or shape[1] < 0 or users(graph, node.output[1]):
        raise refusal(
            "concat() of elements whose lengths may differ", node.name, "give element_shape= to tf.TensorArray"
        )
    rows = make.integers("Mul", make.dims(base, 0, 1), make.const([shape[1]]))
    dims = make.integers("Concat", rows, make.dims(base, 2), axis=0)
    _give(lists, node, make.typed("Reshape", [base, dims], _dtype(node), [-1, *shape[2:]], allowzero=1))


def _scatter_into(lists: Lists, node: Any) -> None:
    value = lists.read(node)
    if value is not None:
        _scattered(lists, node, value, node.input[1], node.input[2])


def _scatter(lists: Lists, node: Any) -> None:
    make = Tensors(lists.graph, node.name)
    # A number of -1 leaves it to the greatest index.
    count = make.after(make.sizes(node.input[1]), make.sizes(node.input[3]))
    _scattered(lists, node, Blank(count, _outline(lists.graph, node.input[2]), _dtype(node)), *node.input[:2])


def _scattered(lists: Lists, node: Any, value: List, items: str, indices: str) -> None:
    make = Tensors(lists.graph, node.name)
    base = make.dense(value, make.dims(items, 1))
    lists.put(node.output[0], Dense(make.written(base, make.sizes(indices), items, _dtype(node)), _dtype(node)))


def _give(lists: Lists, node: Any, tensor: str) -> None:
    """Lets what reads a node read a tensor that is no list."""
    lists.graph.replace_all_inputs(node.output[0], tensor)


HANDLERS: dict[str, Callable[[Lists, Any], None]] = {
    "TensorListReserve": _reserve,
    "TensorListFromTensor": _from_tensor,
    "TensorListSetItem": _set_item,
    "TensorListGetItem": _get_item,
    "TensorListGather": _gathered,
    "TensorListStack": _stack,
    "TensorListLength": _length,
    "TensorListConcatV2": _concat,
    "TensorListScatterIntoExistingList": _scatter_into,
    "TensorListScatterV2": _scatter,
}
