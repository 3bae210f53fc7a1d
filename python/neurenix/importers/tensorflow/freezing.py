"""Concrete functions with constants for their variables."""

from __future__ import annotations

from typing import Any

from neurenix.errors import UnsupportedError
from neurenix.importers.tensorflow import effects, threats


def constants(function: Any) -> Any:
    """A concrete function with constants for its variables, without what assigns or prints and no output reads.

    Raises `UnsupportedError` where outputs read what is assigned, and as TensorFlow where it can't make constants.
    """
    from tensorflow.python.framework import convert_to_constants

    graph = function.graph.as_graph_def()
    if not effects.has_effects(graph):
        # Lowered control flow would take LSTM layers to pieces.
        return convert_to_constants.convert_variables_to_constants_v2(function, lower_control_flow=False)
    threats.check_graph(graph)
    data = convert_to_constants._FunctionConverterDataInEager(
        func=function, lower_control_flow=False, aggressive_inlining=False
    )
    changed = effects.prune(data.graph_def, [tensor.name for tensor in function.outputs])
    if changed:
        names = _variables(function)
        raise UnsupportedError(
            f"the model changes a variable on each call: {', '.join(sorted(names.get(one, one) for one in changed))}",
            expected="outputs that depend on the inputs alone",
            hint="make the variable an input and its new value an output, or leave out what changes it (stateful=False "
            "for recurrent layers, training=False)",
        )
    made, indices = convert_to_constants._replace_variables_by_constants(data)
    return convert_to_constants._construct_concrete_function(function, made, indices)


def _variables(function: Any) -> dict[str, str]:
    """What the variables are called that a function captures, by the nodes that stand for them."""
    handles = {id(variable.handle): variable.name.partition(":")[0] for variable in function.graph.variables}
    captured = zip(function.graph.captures, function.captured_inputs, strict=True)
    return {tensor.op.name: handles[id(value)] for (_, tensor), value in captured if id(value) in handles}
