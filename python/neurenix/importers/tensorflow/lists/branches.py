"""Lists in the branches of an If."""

from __future__ import annotations

from typing import Any

from neurenix.importers.tensorflow.lists.bodies import VARIANT
from neurenix.importers.tensorflow.lists.lists import Lists
from neurenix.importers.tensorflow.lists.values import Dense, Tensors


def convert(lists: Lists, node: Any) -> None:
    """If over lists => If over tensors. Raises `UnsupportedError` where a branch gets an empty one of unknown shape."""
    from tf2onnx.tf_loader import find_function

    graph, found = lists.graph, [find_function(node.get_attr_str(name)) for name in ("then_branch", "else_branch")]
    for number, name in enumerate(list(node.input)[1:], 1):
        value = lists.get(name)
        if value is None:
            continue
        tensor = Tensors(graph, node.name).dense(value, None)
        graph.replace_input(node, name, tensor, number)
        for branch in found:
            _set_dtype(branch, branch.input_names[number - 1], value.dtype)
            branch.set_shape(branch.input_names[number - 1], None)
    for number, name in enumerate(node.output):
        if graph.get_dtype(name) == VARIANT:
            _output(lists, name, [(branch, branch.outputs[number]) for branch in found])


def _output(lists: Lists, name: str, given: list[tuple[Any, str]]) -> None:
    """What either branch gives: a tensor, if one of them has made one of it."""
    dtypes = [branch.get_dtype(output) for branch, output in given]
    dtype = next((one for one in dtypes if one != VARIANT), VARIANT)
    for branch, output in given:
        _set_dtype(branch, output, dtype)
    shapes = [branch.get_shape(output) for branch, output in given]
    lists.graph.set_shape(name, next((one for one in shapes if one), None))
    _set_dtype(lists.graph, name, dtype)
    lists.put(name, Dense(name, dtype))


def _set_dtype(graph: Any, tensor: str, dtype: int) -> None:
    if dtype != VARIANT:
        graph.set_dtype(tensor, dtype)
